//go:build linux

package main

import (
	"strings"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	var samples []sample
	for _, calls := range []int{5, 1, 4, 2, 3} {
		samples = append(samples, sample{calls: calls})
	}
	of := func(s sample) int { return s.calls }
	for p, want := range map[int]int{0: 1, 20: 1, 21: 2, 50: 3, 90: 5, 100: 5} {
		if got := percentile(samples, p, of); got != want {
			t.Errorf("percentile %d is %d, want %d", p, got, want)
		}
	}
	if got := percentile(nil, 50, of); got != 0 {
		t.Errorf("the percentile of nothing is %d", got)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	floor := row{verb: "empty", samples: []sample{{wall: time.Millisecond, cpu: time.Millisecond, calls: -1, bytes: -1}}}
	add := row{verb: "ADD", engine: "etcd", floor: &floor, samples: []sample{
		{wall: 12 * time.Millisecond, cpu: 9 * time.Millisecond, rss: 15 << 20, calls: 4, bytes: 1025},
	}}
	lines := strings.Split(table{floor, add}.String(), "\n")
	if got, want := strings.Join(strings.Fields(lines[1]), " "), "empty 1 1.0 1.0 1.0 1.0 0.0 - -"; got != want {
		t.Errorf("the floor's line is %q, want %q", got, want)
	}
	if got, want := strings.Join(strings.Fields(lines[2]), " "), "ADD etcd 1 12.0 12.0 9.0 9.0 15.0 4 2 9.0 12.0"; got != want {
		t.Errorf("the line of ADD is %q, want %q", got, want)
	}
}
