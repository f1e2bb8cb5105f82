package pair

import (
	"encoding/json"
	"path/filepath"
	"testing"
)

// conflist puts a network on the host where runtimes look for it.
func (h *host) conflist(t *testing.T, c config) {
	t.Helper()
	list := map[string]any{
		"cniVersion": c["cniVersion"], "name": c["name"], "plugins": []any{c.without("name").without("cniVersion")},
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, "/var/lib/net.d/10-net.conflist", string(text))
}

// cnitool runs upstream's runtime.
func (h *host) cnitool(t *testing.T, verb string, arguments ...string) outcome {
	t.Helper()
	where := executables(t)
	return h.run(t, call{
		plugin: filepath.Join(where.tools, "cnitool"), args: append([]string{verb, network}, arguments...),
		env: []string{"NETCONFPATH=/var/lib/net.d", "CNI_PATH=" + where.cniPath()},
	})
}

func TestCnitool(t *testing.T) {
	t.Parallel()
	h, p := newHost(t), newPod(t, "unused", "")
	h.conflist(t, newConfig())
	must := func(verb string, arguments ...string) outcome {
		t.Helper()
		o := h.cnitool(t, verb, arguments...)
		if o.status != 0 {
			t.Fatalf("cnitool %s: status %d\n%s%s", verb, o.status, o.stdout, o.stderr)
		}
		return o
	}
	must("status", p.network.Path())
	r := must("add", p.network.Path()).result(t)
	for _, address := range r.addresses() {
		h.reaches(t, address)
	}
	must("check", p.network.Path())
	must("status", p.network.Path())
	must("del", p.network.Path())
	h.nothingLeft(t)

	// cnitool gc takes every attachment that it remembers for stale.
	must("add", p.network.Path())
	must("gc", p.network.Path())
	h.nothingLeft(t)
}
