package session

import (
	"strings"
	"testing"

	"calico-cni/pkg/invocation"
)

// TestJoin: one process reads a call once, but never takes another call for it.
func TestJoin(t *testing.T) {
	t.Parallel()
	const document = `{"cniVersion":"1.1.0","name":"net","type":"calico","nodename":"n1","ipam":{"type":"calico-ipam"}}`
	var stderr strings.Builder
	call := invocation.Call{Verb: invocation.Add, ContainerID: "c1", IfName: "eth0", Args: "IgnoreUnknown=1", Stdin: []byte(document)}
	outer, err := Begin(Environment{Getenv: func(string) string { return "" }, Stderr: &stderr}, "calico", &call)
	if err != nil {
		t.Fatal(err)
	}
	defer outer.End()
	if err := outer.Identify(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change             func(*invocation.Call)
		parsed             bool
		network, ip, owner string
	}{
		"the same":   {func(*invocation.Call) {}, false, "net", "", "net.c1"},
		"an address": {func(c *invocation.Call) { c.Args += ";IP=10.77.0.9" }, false, "net", "10.77.0.9", "net.c1"},
		"another network": {func(c *invocation.Call) {
			c.Stdin = []byte(strings.Replace(document, `"net"`, `"other"`, 1))
		}, true, "other", "", "other.c1"},
	} {
		inner := call
		test.change(&inner)
		s, err := Join(outer, &inner, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if parsed := s.Conf != outer.Conf; parsed != test.parsed {
			t.Errorf("%s: parsed anew is %v, want %v", name, parsed, test.parsed)
		}
		if s.Conf.Name != test.network || s.Args.IP != test.ip || s.ID.HandleID() != test.owner || s.ID.Node != "n1" {
			t.Errorf("%s: network %s, arguments %+v, identity %+v", name, s.Conf.Name, s.Args, s.ID)
		}
	}
	broken := call
	broken.Stdin = []byte("{")
	if _, err := Join(outer, &broken, nil); err == nil {
		t.Error("a broken configuration was joined")
	}
}
