package plugin

import (
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/invocation"
)

// TestExecutedIPAMDies: whatever an executable does, the error has a code and
// tells what became of it.
func TestExecutedIPAMDies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		code   cnierr.Code
		words  []string
	}{
		"says why":            {"echo no lease >&2; exit 3", cnierr.Unclassified, []string{"exit status 3", "no lease"}},
		"says nothing":        {"exit 3", cnierr.Unclassified, []string{"dying", "exit status 3"}},
		"is killed":           {"kill -9 $$", cnierr.Unclassified, []string{"killed"}},
		"prints no object":    {"echo oops; exit 1", cnierr.Unclassified, []string{"no error object"}},
		"object without code": {`echo '{"msg":"broken"}'; exit 1`, cnierr.Unclassified, []string{"broken"}},
		"object":              {`echo '{"code":42,"msg":"taken"}'; exit 1`, 42, []string{"taken"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.install("dying", test.script)
			conf := n.config("ipam", map[string]any{"type": "dying"})
			_, err := n.runAdd(n.call(invocation.Add, conf))
			wantCode(t, err, test.code, append(test.words, "ADD")...)
			status := cnierr.NotAvailable
			if test.code == 42 {
				status = 42
			}
			wantCode(t, n.plugin.Status(deadline(t), n.call(invocation.Status, conf)), status, test.words...)
		})
	}
	t.Run("what a failing plugin logs is passed on", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.install("dying", `echo a line of its log >&2; echo '{"code":42,"msg":"taken"}'; exit 1`)
		_, err := n.runAdd(n.call(invocation.Add, n.config("ipam", map[string]any{"type": "dying"})))
		wantCode(t, err, 42, "taken")
		if !strings.Contains(n.stderr.String(), "a line of its log") {
			t.Errorf("stderr %s", n.stderr.String())
		}
	})
	// The child of a script keeps the output open, so killing the script is not
	// enough.
	t.Run("Network/63 STATUS answers within 2 s though it hangs", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.install("hanging", "sleep 20")
		start := time.Now()
		err := n.plugin.Status(deadline(t), n.call(invocation.Status, n.config("ipam", map[string]any{"type": "hanging"})))
		wantCode(t, err, cnierr.NotAvailable, "hanging", "did not finish in time")
		if waited := time.Since(start); waited > 4*time.Second {
			t.Errorf("waited %v", waited)
		}
	})
}
