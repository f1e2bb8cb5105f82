package plugin

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
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

// recorder is an IPAM plugin that writes down what it was called with.
const recorder = `dir=$(dirname "$0")
cat > "$dir/stdin.$CNI_COMMAND"
env | grep ^CNI_ | sort > "$dir/env.$CNI_COMMAND"
if [ -e "$dir/fail.$CNI_COMMAND" ]; then cat "$dir/fail.$CNI_COMMAND"; exit 1; fi
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{"address":"10.9.0.5/24","gateway":"10.9.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}'
exit 0`

func (n *node) recorded(name string) string {
	n.t.Helper()
	content, err := os.ReadFile(filepath.Join(n.bin, name))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(content)
}

func (n *node) failing(verb, object string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.bin, "fail."+verb), []byte(object), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func TestExecutedIPAM(t *testing.T) {
	t.Parallel()
	recording := func(t *testing.T) (*node, []any) {
		n := newNode(t)
		n.install("recorder", recorder)
		return n, []any{"ipam", map[string]any{"type": "recorder", "x-own": 1.5}}
	}
	t.Run("Network/5 unknown CNI_ARGS and keys reach it", func(t *testing.T) {
		t.Parallel()
		n, conf := recording(t)
		document := n.config(conf...)
		if _, err := n.runAdd(n.call(invocation.Add, document, func(c *invocation.Call) { c.Args = "IgnoreUnknown=1;FOO=bar" })); err != nil {
			t.Fatal(err)
		}
		if n.recorded("stdin.ADD") != string(document) || !strings.Contains(n.recorded("env.ADD"), "CNI_ARGS=IgnoreUnknown=1;FOO=bar\n") {
			t.Errorf("environment %s, stdin %s", n.recorded("env.ADD"), n.recorded("stdin.ADD"))
		}
	})
	t.Run("Network/74 ADD fails: DEL follows, the error is ADD's", func(t *testing.T) {
		t.Parallel()
		n, conf := recording(t)
		n.failing("ADD", `{"code":42,"msg":"no address","details":"all taken"}`)
		n.failing("DEL", `{"code":43,"msg":"no DEL"}`)
		_, err := n.runAdd(n.call(invocation.Add, n.config(conf...)))
		wantCode(t, err, 42, "recorder", "ADD", "no address", "all taken")
		if want := strings.Replace(n.recorded("env.ADD"), "=ADD", "=DEL", 1); n.recorded("env.DEL") != want {
			t.Errorf("environment of DEL %s, want %s", n.recorded("env.DEL"), want)
		}
	})
	for verb, code := range map[string]string{"STATUS": "4", "GC": "1"} {
		t.Run("Network/66 "+verb+" unknown to it", func(t *testing.T) {
			t.Parallel()
			n, conf := recording(t)
			n.failing(verb, `{"code":`+code+`,"msg":"unknown"}`)
			call := n.call(invocation.Verb(verb), n.config(append(conf, "cni.dev/attachments", nil)...))
			run := map[string]func(context.Context, *invocation.Call) error{"STATUS": n.plugin.Status, "GC": n.plugin.GC}[verb]
			if err := run(deadline(t), call); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("Network/66 STATUS refused by it", func(t *testing.T) {
		t.Parallel()
		n, conf := recording(t)
		n.failing("STATUS", `{"code":50,"msg":"full"}`)
		wantCode(t, n.plugin.Status(deadline(t), n.call(invocation.Status, n.config(conf...))), cnierr.NotAvailable, "full")
	})
	t.Run("Network/66 CHECK refused by it", func(t *testing.T) {
		t.Parallel()
		n, conf := recording(t)
		added, err := n.runAdd(n.call(invocation.Add, n.config(conf...)))
		result := n.result(added, err)
		n.failing("CHECK", `{"code":99,"msg":"not mine"}`)
		wantCode(t, n.plugin.Check(deadline(t), n.call(invocation.Check, n.config(append(conf, "prevResult", result)...))), 99, "not mine")
	})
	t.Run("no address in its result", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.install("empty", `[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0"}'; exit 0`)
		_, err := n.runAdd(n.call(invocation.Add, n.config("ipam", map[string]any{"type": "empty"})))
		wantCode(t, err, cnierr.Unclassified, "empty", "no address")
	})
	t.Run("Network/64 GC is forwarded also without keys", func(t *testing.T) {
		t.Parallel()
		n, conf := recording(t)
		if err := n.plugin.GC(deadline(t), n.call(invocation.GC, n.config(conf...))); err != nil {
			t.Fatal(err)
		}
		n.recorded("stdin.GC")
	})
}

func TestPodCIDRPlaceholders(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.install("host-local", recorder)
	ipam := map[string]any{"type": "host-local", "ranges": []any{
		[]any{map[string]any{"subnet": "USEPODCIDR"}}, []any{map[string]any{"subnet": "usePodCidr"}},
		[]any{map[string]any{"subnet": "usePodCidrIPv6"}}, []any{map[string]any{"subnet": "10.1.0.0/24"}},
	}, "x": 1}
	if err := n.plugin.Del(deadline(t), n.call(invocation.Del, n.config("ipam", ipam))); err != nil {
		t.Fatal(err)
	}
	var sent struct {
		IPAM struct {
			Ranges [][]struct{ Subnet string }
			X      json.Number
		}
	}
	if err := json.Unmarshal([]byte(n.recorded("stdin.DEL")), &sent); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, set := range sent.IPAM.Ranges {
		seen[set[0].Subnet] = true
	}
	if len(seen) != 4 || !seen["10.1.0.0/24"] || sent.IPAM.X != "1" {
		t.Errorf("sent %s", n.recorded("stdin.DEL"))
	}
}
