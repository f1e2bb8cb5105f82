package ipamplugin

import (
	"context"
	"os"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
)

func TestDel(t *testing.T) {
	t.Parallel()
	t.Run("IPAM/24 twice", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.mustAdd()
		for range 2 {
			if err := n.del(); err != nil {
				t.Fatal(err)
			}
		}
		if held := n.allocated(); len(held) != 0 || n.notes() != 0 {
			t.Errorf("allocated %v, %d notes", held, n.notes())
		}
	})
	t.Run("IPAM/25 neither handle", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		if err := n.del(); err != nil {
			t.Error(err)
		}
	})
	t.Run("IPAM/26 the handle of before v3", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.mustAdd()
		for _, path := range []string{"/calico/ipam/v2/handle/net.c1", "/calico/ipam/v2/assignment/ipv4/block/10.77.0.0-26"} {
			value, ok := n.store.Raw(path)
			if !ok {
				t.Fatalf("%s is missing", path)
			}
			n.store.Uproot(path)
			n.store.Plant(strings.Replace(path, "net.c1", "shop.web-0", 1), strings.ReplaceAll(value, "net.c1", "shop.web-0"))
		}
		call := n.call(invocation.Del, n.config())
		call.Args = "IgnoreUnknown=1;K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=shop"
		if err := n.plugin.Del(deadline(t), call); err != nil {
			t.Fatal(err)
		}
		if held := n.allocated(); len(held) != 0 {
			t.Errorf("allocated %v", held)
		}
	})
	t.Run("another container's handle may spell like the one of before v3", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.mustAdd() // handle net.c1
		pod := n.call(invocation.Del, n.config())
		pod.ContainerID, pod.Args = "c2", "IgnoreUnknown=1;K8S_POD_NAME=c1;K8S_POD_NAMESPACE=net"
		other := n.call(invocation.Del, n.config("name", "other"))
		other.ContainerID = "net.c1"
		// The pod may be another node's, whose notes are not here.
		for _, call := range []*invocation.Call{other, pod} {
			if err := n.plugin.Del(deadline(t), call); err != nil {
				t.Fatal(err)
			}
			if held := n.allocated(); held["net.c1"] != 1 {
				t.Fatalf("DEL of %s freed another container's address: %v", call.ContainerID, held)
			}
			if err := os.RemoveAll(n.plugin.NotesDirectory); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("a bad IP= or a placeholder does not keep it from releasing", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.mustAdd()
		call := n.call(invocation.Del, n.config("type", "ptp", "log_file_path", "__LOG__", "device_type", "ipvlan"))
		call.Args = "IP=nonsense"
		if err := n.plugin.Del(deadline(t), call); err != nil {
			t.Fatal(err)
		}
		if len(n.allocated()) != 0 || !strings.Contains(n.stderr.String(), "log_file_path") {
			t.Errorf("allocated %v, log %s", n.allocated(), n.stderr.String())
		}
	})
	t.Run("datastore down", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.mustAdd()
		n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error { return memory.Down(call) }})
		wantCode(t, n.del(), cnierr.TryAgainLater, "connection refused")
		if n.notes() != 1 {
			t.Error("the note is gone although the address is not")
		}
	})
}
