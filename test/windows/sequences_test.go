//go:build wine && linux

package windows

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/embedded"
	"calico-cni/pkg/model"
	"calico-cni/test/windows/wine"
	"calico-cni/windows/hnssim"
)

// wantNothing checks that nothing of a container is left: no endpoint, address,
// handle or note. No plugin runs meanwhile.
func (n *node) wantNothing() {
	n.Helper()
	if left := n.podEndpoints(); len(left) > 0 {
		n.Errorf("endpoints %v are left", left)
	}
	ctx, cancel := context.WithTimeout(n.Context(), time.Minute)
	defer cancel()
	store, _, err := embedded.Open(ctx, n.wine.Path(onDrive(n.conf["embedded_file"].(string))), embedded.Bootstrap{NodeName: "win-1"})
	if err != nil {
		n.Fatal(err)
	}
	defer store.Close()
	answers, err := store.Read(ctx, datastore.ListHandles{})
	if err != nil {
		n.Fatal(err)
	}
	for _, entry := range answers[0].Entries {
		if key, ok := entry.Key.(model.HandleKey); !ok || key.ID != model.ReserveHandleID {
			n.Errorf("handle %v is left", entry.Key)
		}
	}
	// Whatever has an address has a handle, and a note.
	notes, err := os.ReadDir(n.wine.Path("CalicoWindows/cni"))
	if err != nil || len(notes) > 0 {
		n.Errorf("notes %v are left, %v", notes, err)
	}
}

func (n *node) podEndpoints() []string {
	return slices.DeleteFunc(n.endpoints(), func(name string) bool { return strings.HasSuffix(name, "_ep") })
}

// gc runs GC, for which these containers are valid.
func (n *node) gc(valid ...string) {
	n.Helper()
	attachments := []any{}
	for _, container := range valid {
		attachments = append(attachments, map[string]any{"containerID": container, "ifname": "eth0"})
	}
	n.silent("GC", "web-0", map[string]any{"cni.dev/valid-attachments": attachments})
}

// testFlagSwitched switches windows_use_single_network, with pods and without.
func testFlagSwitched(t *testing.T, machine *wine.Host) {
	for _, c := range []struct{ single, other string }{{"true", "false"}, {"false", "true"}} {
		t.Run("Windows/37 from "+c.single+" to "+c.other, func(t *testing.T) {
			n := newNode(t, machine, build)
			n.conf["windows_use_single_network"] = c.single == "true"
			n.add("web-0")
			before := n.networks()
			n.refused("web-1", map[string]any{"windows_use_single_network": c.other == "true"}, 112, "web-0_Calico", "drain")
			n.conf["windows_use_single_network"] = c.other == "true"
			n.silent("DEL", "web-0", nil)
			n.add("web-1")
			if after := n.networks(); len(after) != 1 || after[0] == before[0] {
				t.Errorf("networks %v became %v", before, after)
			}
			n.silent("DEL", "web-1", nil)
			n.wantNothing()
		})
	}
	t.Run("Windows/38 a second block has a second network", func(t *testing.T) {
		n := newNode(t, machine, build)
		n.engine.Assume(hnssim.DistinctVSIDs, false)
		n.conf["windows_use_single_network"] = false
		n.conf["pools"] = []any{map[string]any{"name": "pods", "cidr": "10.48.0.0/16", "blockSize": 29, "natOutgoing": true}}
		for i := range 5 {
			n.add(fmt.Sprintf("web-%d", i))
		}
		if got := n.networks(); len(got) != 2 || !strings.HasPrefix(got[0], "Calico-10-48-") || !strings.HasPrefix(got[1], "Calico-10-48-") {
			t.Errorf("networks %v", got)
		}
	})
}

func (n *node) networks() []string {
	n.Helper()
	found, err := n.engine.Service().Networks(n.Context())
	if err != nil {
		n.Fatal(err)
	}
	var names []string
	for _, network := range found {
		names = append(names, network.Name)
	}
	return names
}

// testSlow has an HNS that takes its time for everything.
func testSlow(t *testing.T, machine *wine.Host) {
	n := newNode(t, machine, build)
	n.sandbox("web-0")
	n.engine.Change(func(p *hnssim.Profile) { p.ManagementDelay, p.InterfaceDelay = 2*time.Second, 3*time.Second })
	n.engine.Inject(hnssim.Fault{During: func() {
		late := time.NewTimer(100 * time.Millisecond)
		defer late.Stop()
		select {
		case <-late.C:
		case <-n.Context().Done():
		}
	}})
	n.add("web-0")
	n.silent("DEL", "web-0", nil)
	n.engine.ClearFaults()
	n.wantNothing()
}

// testLateDelete deletes an old sandbox after its successor got the address.
func testLateDelete(t *testing.T, machine *wine.Host) {
	n := newNode(t, machine, build)
	// One address only: the block's others are taken.
	n.conf["pools"] = []any{map[string]any{"name": "pods", "cidr": "10.48.0.0/29", "blockSize": 29, "natOutgoing": true}}
	for i := range 3 {
		n.add(fmt.Sprintf("other-%d", i))
	}
	old := n.add("old")
	found, err := n.engine.Service().EndpointsByName(t.Context(), "old_Calico")
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	// The old sandbox is gone, and its address was freed, but not its endpoint.
	if err := n.engine.Delete(t.Context(), hnssim.Namespace, n.netns["old"]); err != nil {
		t.Fatal(err)
	}
	if got := n.ipam("DEL", "old"); got.Exit != 0 {
		t.Fatalf("exit %d: %s", got.Exit, got.Stdout)
	}
	next := n.add("next")
	if next.IPs[0].Address != old.IPs[0].Address {
		t.Fatalf("the addresses are %s and %s", old.IPs[0].Address, next.IPs[0].Address)
	}
	t.Run("Windows/61", func(t *testing.T) {
		n.silent("DEL", "old", nil)
		if got := n.podEndpoints(); !slices.Contains(got, "next_Calico") || slices.Contains(got, "old_Calico") {
			t.Errorf("endpoints %v", got)
		}
	})
}
