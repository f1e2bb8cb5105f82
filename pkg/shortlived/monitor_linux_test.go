package shortlived

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// TestMonitorIsCalm looks at the threads of the test itself, which imports the
// package like any command.
func TestMonitorIsCalm(t *testing.T) {
	if got := runtime.GOMAXPROCS(0); got != 1 {
		t.Errorf("GOMAXPROCS is %d, want 1", got)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	calm := 0
	for _, thread := range threads {
		text, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(string(text)) == slack {
			calm++
			if thread.Name() == strconv.Itoa(os.Getpid()) {
				t.Error("the timers of the first thread are late too")
			}
		}
	}
	if calm == 0 {
		t.Error("no thread has the slack")
	}
}

func TestDecimal(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 7, 10, 4194304} {
		if got := decimal(n); got != fmt.Sprint(n) {
			t.Errorf("%d is %q", n, got)
		}
	}
}
