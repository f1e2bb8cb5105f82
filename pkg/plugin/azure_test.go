package plugin

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"calico-cni/pkg/invocation"
)

func TestAzure(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.install("azure-vnet-ipam", recorder)
	conf := n.config("ipam", map[string]any{"type": "azure-vnet-ipam"})
	section := func(verb string) map[string]string {
		var sent struct{ IPAM map[string]string }
		if err := json.Unmarshal([]byte(n.recorded("stdin."+verb)), &sent); err != nil {
			t.Fatal(err)
		}
		return sent.IPAM
	}
	add := func(id string) error {
		_, err := n.runAdd(n.call(invocation.Add, conf, container(id)))
		return err
	}
	del := func(id string) error {
		return n.plugin.Del(deadline(t), n.call(invocation.Del, conf, container(id)))
	}
	t.Run("Network/70 the first ADD knows no subnet, the second does", func(t *testing.T) {
		if err := add("a"); err != nil {
			t.Fatal(err)
		}
		if got := section("ADD"); !maps.Equal(got, map[string]string{"type": "azure-vnet-ipam"}) {
			t.Errorf("first ADD: ipam %v", got)
		}
		if err := add("b"); err != nil {
			t.Fatal(err)
		}
		if got := section("ADD")["subnet"]; got != "10.9.0.0/24" {
			t.Errorf("second ADD: subnet %q", got)
		}
	})
	t.Run("Network/70 DEL whose release fails keeps the state", func(t *testing.T) {
		n.failing("DEL", `{"code":42,"msg":"no"}`)
		wantCode(t, del("a"), 42)
		if err := os.Remove(filepath.Join(n.bin, "fail.DEL")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("Network/70 DEL names address and subnet", func(t *testing.T) {
		if err := del("a"); err != nil {
			t.Fatal(err)
		}
		if got := section("DEL"); got["ipAddress"] != "10.9.0.5" || got["subnet"] != "10.9.0.0/24" {
			t.Errorf("ipam %v", got)
		}
	})
	t.Run("Network/70 DEL without a stored address calls nothing", func(t *testing.T) {
		if err := os.Remove(filepath.Join(n.bin, "stdin.DEL")); err != nil {
			t.Fatal(err)
		}
		if err := del("a"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(n.bin, "stdin.DEL")); err == nil {
			t.Error("the IPAM plugin was called")
		}
	})
}
