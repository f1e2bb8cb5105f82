package session

import (
	"context"
	"io"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/netconf"
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
	defer outer.End(&err)
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

// TestUnlimit: the work of GC grows with what containers left behind.
func TestUnlimit(t *testing.T) {
	t.Parallel()
	for _, verb := range []invocation.Verb{invocation.Add, invocation.Del, invocation.Check, invocation.Status, invocation.GC} {
		lifted := false
		env := Environment{Getenv: func(string) string { return "" }, Stderr: io.Discard,
			Open: func(context.Context, *netconf.Config, string) (connect.Connection, error) {
				return connect.Connection{Store: memory.New(memory.Options{}), Unlimit: func() { lifted = true }}, nil
			}}
		call := invocation.Call{Verb: verb, Stdin: []byte(`{"cniVersion":"1.1.0","name":"net","type":"calico","nodename":"n1","ipam":{"type":"calico-ipam"}}`)}
		s, err := Begin(env, "calico", &call)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.End(&err)
		if lifted != (verb == invocation.GC) {
			t.Errorf("%s: limits lifted: %v", verb, lifted)
		}
	}
}

// TestLog: the log tells of each failure and each warning once.
func TestLog(t *testing.T) {
	t.Parallel()
	failure := error(cnierr.New(cnierr.NoPool, "no pool"))
	for name, test := range map[string]struct {
		plugin, network string
		verb            invocation.Verb
		warned, failed  int
	}{
		"the network plugin":             {"calico", "calico", invocation.Add, 1, 1},
		"the IPAM plugin, executed":      {"calico-ipam", "calico", invocation.Del, 0, 1},
		"the IPAM plugin of another one": {"calico-ipam", "ptp", invocation.Add, 1, 1},
		"STATUS":                         {"calico", "calico", invocation.Status, 0, 0},
	} {
		var stderr strings.Builder
		call := invocation.Call{Verb: test.verb, Stdin: []byte(
			`{"cniVersion":"1.1.0","name":"net","type":"` + test.network + `","nodenmae":"n1","ipam":{"type":"calico-ipam"}}`)}
		s, err := Begin(Environment{Getenv: func(string) string { return "" }, Stderr: &stderr}, test.plugin, &call)
		if err != nil {
			t.Fatal(err)
		}
		inner, err := Join(s, &call, nil)
		if err != nil {
			t.Fatal(err)
		}
		inner.End(&failure)
		s.End(&failure)
		if warned := strings.Count(stderr.String(), "nodenmae"); warned != test.warned {
			t.Errorf("%s: warned %d times, want %d:\n%s", name, warned, test.warned, stderr.String())
		}
		if failed := strings.Count(stderr.String(), "no pool"); failed != test.failed {
			t.Errorf("%s: %d failures logged, want %d:\n%s", name, failed, test.failed, stderr.String())
		}
	}
}
