package kubernetes

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// TestMayRepeat: a second try is for what the server has not acted on, and is
// the last one.
func TestMayRepeat(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method string
		came   progress
		want   bool
	}{
		"a read, no connection":                {http.MethodGet, nowhere, false},
		"a read, the connection ended before":  {http.MethodGet, connected, true},
		"a read, no answer":                    {http.MethodGet, written, true},
		"a write, no connection":               {http.MethodPut, nowhere, false},
		"a write, the connection ended before": {http.MethodPut, connected, true},
		"a write, no answer":                   {http.MethodPut, written, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := sending{request: request{method: test.method}, started: time.Now()}
			if got := f.mayRepeat(t.Context(), test.came); got != test.want {
				t.Errorf("the second try: %v, want %v", got, test.want)
			}
			if f.mayRepeat(t.Context(), test.came) && test.want {
				t.Error("there is a third try")
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			late := sending{request: request{method: test.method}, started: time.Now()}
			if late.mayRepeat(ended, test.came) {
				t.Error("a second try after the end of the call")
			}
		})
	}
}
