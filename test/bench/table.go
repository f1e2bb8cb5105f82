//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one line of the table.
type row struct {
	verb, engine string
	samples      []sample
	// floor is the row that CPU and wall are compared with; nil for a floor.
	floor *row
}

// sample is one run of what a row measures.
type sample struct {
	wall, cpu time.Duration
	rss       int64
	// calls and bytes are what the datastore's server saw; -1: not counted.
	calls, bytes int
}

type table []row

// String is the table with its columns aligned.
func (t table) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "verb\tengine\tn\twall ms\tp90\tCPU ms\tp90\tRSS MiB\tRPCs\tKiB\tCPU x floor\twall x floor\t")
	for _, r := range t {
		fmt.Fprintln(w, r.line())
	}
	w.Flush() // into memory
	return text.String()
}

func (r row) line() string {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }
	cpu, wall := r.cpu(), r.wall()
	fields := []string{
		r.verb, r.engine, fmt.Sprint(len(r.samples)),
		ms(wall), ms(percentile(r.samples, 90, func(s sample) time.Duration { return s.wall })),
		ms(cpu), ms(percentile(r.samples, 90, func(s sample) time.Duration { return s.cpu })),
		fmt.Sprintf("%.1f", float64(percentile(r.samples, 50, func(s sample) int64 { return s.rss }))/(1<<20)),
		counted(percentile(r.samples, 50, func(s sample) int { return s.calls }), 1),
		counted(percentile(r.samples, 50, func(s sample) int { return s.bytes }), 1<<10),
		"", "",
	}
	if r.floor != nil {
		fields[10] = ratio(cpu, r.floor.cpu())
		fields[11] = ratio(wall, r.floor.wall())
	}
	return strings.Join(fields, "\t") + "\t"
}

func (r row) cpu() time.Duration {
	return percentile(r.samples, 50, func(s sample) time.Duration { return s.cpu })
}

func (r row) wall() time.Duration {
	return percentile(r.samples, 50, func(s sample) time.Duration { return s.wall })
}

func counted(n, unit int) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint((n + unit - 1) / unit)
}

func ratio(a, b time.Duration) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(a)/float64(b))
}

// percentile is the smallest value that at least p of 100 samples do not
// exceed; of none it is zero.
func percentile[T int | int64 | time.Duration](samples []sample, p int, of func(sample) T) T {
	if len(samples) == 0 {
		return 0
	}
	values := make([]T, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[max(0, (len(values)*p+99)/100-1)]
}
