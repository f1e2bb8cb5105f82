//go:build wine && linux

package windows

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"calico-cni/test/windows/wine"
)

// otherBuild is a folder with the pair, of which the IPAM plugin is of another
// build: it is then executed.
func (n *node) otherBuild() string {
	n.Helper()
	files := map[string]string{}
	for _, name := range []string{"calico.exe", "calico-ipam.exe"} {
		body, err := os.ReadFile(n.wine.Path("k/cni/" + name))
		if err != nil {
			n.Fatal(err)
		}
		if name == "calico-ipam.exe" {
			at := bytes.LastIndex(body, []byte("calico-cni:"))
			copy(body[at+len("calico-cni:"):], "another")
		}
		files[name] = string(body)
	}
	n.files(`C:\other`, files)
	return `C:\other`
}

// traced is a call of which the processes that it creates are told.
func (n *node) traced(verb, container string) wine.Result {
	n.Helper()
	n.trace = true
	defer func() { n.trace = false }()
	got := n.call(verb, container, nil)
	if got.Exit != 0 {
		n.Fatalf("%s: exit %d\n%s", verb, got.Exit, got.Stdout)
	}
	return got
}

// testProcesses: nothing is executed but the IPAM plugin, and that only if it is
// of another build.
func testProcesses(t *testing.T, machine *wine.Host) {
	for name, mode := range map[string]string{"vxlan": "vxlan", "l2bridge": ""} {
		t.Run("Windows/6 in one process, "+name, func(t *testing.T) {
			n := newNode(t, machine, build)
			n.conf["mode"] = mode
			for _, verb := range []string{"STATUS", "ADD", "DEL"} {
				if created := n.traced(verb, "web-0").Created(); len(created) > 0 {
					t.Errorf("%s created %q", verb, created)
				}
			}
		})
	}
	t.Run("the IPAM plugin of another build", func(t *testing.T) {
		n := newNode(t, machine, build)
		n.folder = n.otherBuild()
		for _, verb := range []string{"ADD", "DEL"} {
			if created := n.traced(verb, "web-0").Created(); len(created) != 1 || !strings.Contains(created[0], `calico-ipam.exe"`) {
				t.Errorf("%s created %q", verb, created)
			}
		}
		n.wantNothing()
	})
	t.Run("the IPAM plugin on its own", func(t *testing.T) {
		n := newNode(t, machine, build)
		var out result
		if err := json.Unmarshal([]byte(n.ipam("ADD", "alone").Stdout), &out); err != nil || len(out.IPs) != 1 || !strings.HasSuffix(out.IPs[0].Address, "/26") {
			t.Errorf("ADD: %+v, %v", out, err)
		}
		for range 2 {
			if got := n.ipam("DEL", "alone"); got.Exit != 0 || got.Stdout != "" {
				t.Errorf("DEL: exit %d\n%s", got.Exit, got.Stdout)
			}
		}
		if calls := n.engine.Calls(); len(calls) > 0 {
			t.Errorf("HNS was asked: %v", calls)
		}
		n.wantNothing()
	})
}

// ipam executes calico-ipam.exe as another network plugin does.
func (n *node) ipam(verb, container string) wine.Result {
	n.Helper()
	stdin, err := json.Marshal(n.conf)
	if err != nil {
		n.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(n.Context(), callTime)
	defer cancel()
	return n.wine.Run(ctx, n, wine.Call{Plugin: "calico-ipam", Port: n.server.Port(), Stdin: string(stdin), Environment: map[string]string{
		"CNI_COMMAND": verb, "CNI_CONTAINERID": container, "CNI_NETNS": "none", "CNI_IFNAME": "eth0",
	}})
}
