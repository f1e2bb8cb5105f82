package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// cluster holds two pools, a block with one address in use and a reservation,
// a block outside every pool, and a borrowed address.
func cluster(t *testing.T) *memory.Store {
	t.Helper()
	store := memory.New(memory.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	resource := func(kind model.Kind, name string, value any) datastore.Mutation {
		return datastore.Put(model.ResourceKey{Kind: kind, Name: name}, value, datastore.Absent)
	}
	_, err := store.Write(ctx, datastore.Step{
		resource(model.KindNode, "n1", &model.Node{Metadata: model.Metadata{Name: "n1"}}),
		resource(model.KindIPPool, "pods", &model.IPPool{Metadata: model.Metadata{Name: "pods"}, RawCIDR: "10.77.0.0/24", BlockSize: 26}),
		resource(model.KindIPPool, "big", &model.IPPool{Metadata: model.Metadata{Name: "big"}, RawCIDR: "fd00::/32", BlockSize: 122}),
		resource(model.KindIPReservation, "gw", &model.IPReservation{Metadata: model.Metadata{Name: "gw"}, CIDRs: []string{"10.77.0.250/31"}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	allocator := ipam.New(store, ipam.Options{Now: func() time.Time { return now }})
	for _, addr := range []string{"10.77.0.5"} {
		_, err := allocator.AssignAddress(ctx, ipam.AddressRequest{
			Addr: netip.MustParseAddr(addr), Host: "n1", HandleID: "net.c1", Use: model.UseWorkload,
			Attributes: map[string]string{"node": "n2", "pod": "web-0", "namespace": "shop"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	orphan := model.NewBlock(netip.MustParsePrefix("10.99.0.0/26"), "host:n9", now, nil)
	if _, err := store.Write(ctx, datastore.Step{datastore.Put(model.BlockKey{CIDR: orphan.CIDR}, orphan, datastore.Absent)}); err != nil {
		t.Fatal(err)
	}
	return store
}

func run(t *testing.T, store datastore.Store, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	exit = Run(context.Background(), Process{
		Args: args, Stdout: &out, Stderr: &errs, Now: func() time.Time { return now },
		ConfigDirectory: filepath.Join(t.TempDir(), "absent"),
		Open: func(context.Context, *netconf.Config, string) (connect.Connection, error) {
			return connect.Connection{Store: store}, nil
		},
	})
	return exit, out.String(), errs.String()
}

func TestShow(t *testing.T) {
	t.Parallel()
	store := cluster(t)
	before := store.Dump()
	const head = "" +
		"+----------+--------------+-------------------------------+------------+--------------+--------------------------------------+\n" +
		"| GROUPING |     CIDR     |           IPS TOTAL           | IPS IN USE | IPS RESERVED |               IPS FREE               |\n" +
		"+----------+--------------+-------------------------------+------------+--------------+--------------------------------------+\n" +
		"| IP Pool  | fd00::/32    | 79228162514264337593543950336 |     0 (0%) |       0 (0%) | 79228162514264337593543950336 (100%) |\n" +
		"| IP Pool  | 10.77.0.0/24 |                           256 |     1 (0%) |       2 (1%) |                            253 (99%) |\n"
	const foot = "+----------+--------------+-------------------------------+------------+--------------+--------------------------------------+\n"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"pools": {[]string{"show"}, head + foot},
		"blocks": {[]string{"show", "--show-blocks"}, head +
			"| Block    | 10.77.0.0/26 |                            64 |     1 (2%) |       0 (0%) |                             63 (98%) |\n" +
			"| Block    | 10.99.0.0/26 |                            64 |     0 (0%) |       0 (0%) |                            64 (100%) |\n" + foot},
		"borrowed": {[]string{"show", "--show-borrowed"}, "" +
			"+-----------+----------------+--------------+-------------+------+--------------+\n" +
			"|    IP     | BORROWING-NODE |    BLOCK     | BLOCK OWNER | TYPE | ALLOCATED-TO |\n" +
			"+-----------+----------------+--------------+-------------+------+--------------+\n" +
			"| 10.77.0.5 | n2             | 10.77.0.0/26 | host:n1     | pod  | shop/web-0   |\n" +
			"+-----------+----------------+--------------+-------------+------+--------------+\n" +
			"Allocations that do not tell their node: 0\n"},
		"configuration": {[]string{"show", "--show-configuration"}, "" +
			"+------------------------------+---------+\n" +
			"|           PROPERTY           |  VALUE  |\n" +
			"+------------------------------+---------+\n" +
			"| StrictAffinity               | false   |\n" +
			"| AutoAllocateBlocks           | true    |\n" +
			"| MaxBlocksPerHost             |       0 |\n" +
			"| KubeVirtVMAddressPersistence | Enabled |\n" +
			"| IPCooldownSeconds            |       0 |\n" +
			"+------------------------------+---------+\n"},
		"address in use": {[]string{"show", "--ip=10.77.0.5"}, "IP 10.77.0.5 is in use\nHandle ID: net.c1\nBlock: 10.77.0.0/26\n" +
			"Active Owner Attributes:\n  namespace: shop\n  node: n2\n  pod: web-0\n"},
		"address free":    {[]string{"show", "--ip=10.77.0.6"}, "10.77.0.6 is not assigned\n"},
		"address nowhere": {[]string{"show", "--ip=192.0.2.1"}, "192.0.2.1 is not assigned\n"},
	} {
		t.Run(name, func(t *testing.T) {
			exit, stdout, stderr := run(t, store, test.args...)
			if exit != exitFine || stdout != test.want {
				t.Errorf("exit %d, stderr %q, stdout\n%s, want\n%s", exit, stderr, stdout, test.want)
			}
		})
	}
	if store.Dump() != before {
		t.Error("show changed the datastore")
	}
}

func TestShowJSON(t *testing.T) {
	t.Parallel()
	exit, stdout, stderr := run(t, cluster(t), "show", "--show-blocks", "--show-borrowed", "--show-configuration", "-o", "json")
	if exit != exitFine {
		t.Fatalf("exit %d: %s", exit, stderr)
	}
	var doc struct {
		Pools []struct {
			Name        string
			Total, Free json.Number
			InUse       int
			Blocks      []struct{ CIDR, Owner string }
		}
		BlocksOutsidePools []struct{ CIDR string }
		Borrowed           []struct{ IP, BorrowingNode string }
		Configuration      map[string]any
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Pools) != 2 || doc.Pools[0].Total != "79228162514264337593543950336" || doc.Pools[1].InUse != 1 ||
		len(doc.Pools[1].Blocks) != 1 || doc.Pools[1].Blocks[0].Owner != "host:n1" ||
		len(doc.BlocksOutsidePools) != 1 || len(doc.Borrowed) != 1 || doc.Borrowed[0].BorrowingNode != "n2" || doc.Configuration == nil {
		t.Errorf("document %s", stdout)
	}
}

func TestProblemsAreShown(t *testing.T) {
	t.Parallel()
	store := cluster(t)
	store.Plant("/calico/resources/v3/projectcalico.org/ippools/broken",
		`{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"broken"},"spec":{"cidr":"10.0.0.0/33"}}`)
	exit, stdout, stderr := run(t, store, "show")
	if exit != exitProblems || !strings.Contains(stderr, "broken") || !strings.Contains(stdout, "10.77.0.0/24") {
		t.Errorf("exit %d, stderr %q, stdout %s", exit, stderr, stdout)
	}
}

func TestCannotRun(t *testing.T) {
	t.Parallel()
	down := memory.New(memory.Options{})
	down.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error { return memory.Down(call) }})
	file := filepath.Join(t.TempDir(), "bridge.conf")
	if err := os.WriteFile(file, []byte(`{"type":"bridge","ipam":{"type":"host-local"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		word string
	}{
		"unknown command":        {[]string{"shwo"}, "shwo"},
		"unknown flag":           {[]string{"show", "--all"}, "all"},
		"unknown argument":       {[]string{"show", "all"}, "all"},
		"unknown output":         {[]string{"show", "-o", "yaml"}, "yaml"},
		"no address":             {[]string{"show", "--ip=x"}, "--ip=x"},
		"datastore down":         {[]string{"show"}, "connection refused"},
		"configuration missing":  {[]string{"show", "--config", "/absent"}, "/absent"},
		"configuration not ours": {[]string{"show", "--config", file}, "calico-ipam"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exit, stdout, stderr := run(t, down, test.args...)
			if exit != exitCannotRun || stdout != "" || !strings.Contains(stderr, test.word) {
				t.Errorf("exit %d, stdout %q, stderr %q, want the word %q", exit, stdout, stderr, test.word)
			}
		})
	}
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	for name, content := range map[string]string{
		"00-broken.conf":    `{`,
		"05-bridge.conf":    `{"type":"bridge","name":"b","ipam":{"type":"host-local"}}`,
		"10-own.conflist":   `{"name":"net","cniVersion":"1.0.0","plugins":[{"type":"loopback"},{"type":"calico","nodename":"n1","ipam":{"type":"calico-ipam"}}]}`,
		"20-other.conflist": `{"name":"other","plugins":[{"type":"calico","nodename":"n2","ipam":{"type":"calico-ipam"}}]}`,
		"README":            `{"type":"calico","name":"readme","ipam":{"type":"calico-ipam"}}`,
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct{ file, directory, network string }{
		"first of ours":   {"", directory, "net"},
		"named":           {filepath.Join(directory, "20-other.conflist"), directory, "other"},
		"none":            {"", t.TempDir(), "calico-ipam"},
		"no directory":    {"", filepath.Join(directory, "absent"), "calico-ipam"},
		"a single plugin": {filepath.Join(directory, "README"), directory, "readme"},
	} {
		conf, err := configuration(test.file, test.directory)
		if err != nil || conf.Name != test.network {
			t.Errorf("%s: %v, %v, want network %s", name, conf, err, test.network)
		}
	}
	wrong := filepath.Join(t.TempDir(), "10-wrong.conf")
	if err := os.WriteFile(wrong, []byte(`{"type":"calico","name":"net","mtu":"1500","ipam":{"type":"calico-ipam"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"", wrong} {
		if _, err := configuration(file, filepath.Dir(wrong)); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v does not name the file %s", err, wrong)
		}
	}
}
