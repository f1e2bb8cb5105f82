package ipamplugin

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
)

func TestAdd(t *testing.T) {
	t.Parallel()
	t.Run("IPAM/49 routes, one per address, IPv4 first", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		result, err := n.runAdd(n.call(invocation.Add, n.config("ipam.assign_ipv6", "true")))
		if err != nil {
			t.Fatal(err)
		}
		converted, err := types100.NewResultFromResult(result)
		if err != nil {
			t.Fatal(err)
		}
		if len(converted.IPs) != 2 || len(converted.Routes) != 2 || converted.IPs[0].Address.String() != "10.77.0.0/26" ||
			!strings.HasSuffix(converted.IPs[1].Address.String(), "/122") {
			t.Fatalf("result %v", converted)
		}
		for i, ip := range converted.IPs {
			if route := converted.Routes[i]; route.Dst.String() != ip.Address.String() || route.GW != nil {
				t.Errorf("route %v of address %v", route, ip)
			}
		}
	})
	t.Run("stdout closed: nothing stays taken", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		call := n.call(invocation.Add, n.config())
		call.Deliver = func(types.Result) error { return cnierr.New(cnierr.InputOutput, "broken pipe") }
		wantCode(t, n.plugin.Add(deadline(t), call), cnierr.InputOutput, "broken pipe")
		if held := n.allocated(); len(held) > 0 {
			t.Errorf("allocated are still %v", held)
		}
	})
	t.Run("IPAM/50 lock file in an unwritable directory", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		file := filepath.Join(n.dir, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		n.mustAdd("ipam_lock_file", filepath.Join(file, "ipam.lock"))
		if !strings.Contains(n.stderr.String(), "IPAM lock") {
			t.Errorf("nothing was logged: %s", n.stderr.String())
		}
	})
	t.Run("IPAM/51 node missing", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		_, err := n.add(n.call(invocation.Add, n.config("nodename", "stranger")))
		wantCode(t, err, cnierr.NodeUnknown, "stranger")
	})
	t.Run("IPAM/48 IPv6 exhausted: IPv4 is released", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.store.Uproot("/calico/resources/v3/projectcalico.org/ippools/pods6")
		n.pool("tiny6", "fd00:78::/128", 128)
		n.mustAdd("ipam.assign_ipv4", "false", "ipam.assign_ipv6", "true")
		call := n.call(invocation.Add, n.config("ipam.assign_ipv6", "true"))
		call.ContainerID = "c2"
		_, err := n.add(call)
		wantCode(t, err, cnierr.AddressesExhausted, "failed to request IPv6 addresses", "Assigned 0 out of 1 requested IPv6 addresses")
		if held := n.allocated(); len(held) != 1 || held["net.c1"] != 1 {
			t.Errorf("allocated %v", held)
		}
	})
	t.Run("a failed ADD keeps the addresses of an earlier one", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.mustAdd()
		n.store.Uproot("/calico/resources/v3/projectcalico.org/ippools/pods6")
		if _, err := n.add(n.call(invocation.Add, n.config("ipam.assign_ipv6", "true"))); err == nil {
			t.Fatal("ADD succeeded")
		}
		if held := n.allocated(); held["net.c1"] != 1 {
			t.Errorf("allocated %v", held)
		}
	})
	t.Run("neither family", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		_, err := n.add(n.call(invocation.Add, n.config("ipam.assign_ipv4", "false")))
		wantCode(t, err, cnierr.InvalidConfiguration, "assign_ipv4", "assign_ipv6")
	})
	t.Run("IP= names the address", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		call := n.call(invocation.Add, n.config())
		call.Args = "IgnoreUnknown=1;IP=10.77.0.200"
		if addresses, err := n.add(call); err != nil || len(addresses) != 1 || addresses[0] != "10.77.0.200/32" {
			t.Errorf("addresses %v, %v", addresses, err)
		}
		call.Args = "IgnoreUnknown=1;IP=10.99.0.1"
		_, err := n.add(call)
		wantCode(t, err, cnierr.AddressOutsidePools, "The provided IP address is not in a configured pool")
		call.Args, call.ContainerID = "IgnoreUnknown=1;IP=10.77.0.200", "c2"
		_, err = n.add(call)
		wantCode(t, err, cnierr.AddressTaken, "10.77.0.200")
	})
}

func TestPools(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		row     string
		members []any
		want    string
		code    cnierr.Code
		word    string
	}{
		{"by name", []any{"ipam.ipv4_pools", []string{"second"}}, "10.78.0.", 0, ""},
		{"by CIDR", []any{"ipam.ipv4_pools", []string{"10.78.0.0/24"}}, "10.78.0.", 0, ""},
		{"by CIDR with host bits", []any{"ipam.ipv4_pools", []string{"10.78.0.9/24"}}, "10.78.0.", 0, ""},
		{"unknown name", []any{"ipam.ipv4_pools", []string{"third"}}, "", cnierr.InvalidConfiguration, `error parsing pool "third": invalid CIDR address: third`},
		{"wrong family", []any{"ipam.ipv4_pools", []string{"fd00:77::/112"}}, "", cnierr.InvalidConfiguration, `"fd00:77::" isn't a IPv4 address`},
		{"IPAM/40 not a pool", []any{"ipam.ipv4_pools", []string{"10.78.0.0/25"}}, "", cnierr.NoPool, "the given pool (10.78.0.0/25) does not exist, or is not enabled"},
	} {
		t.Run(test.row, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.pool("second", "10.78.0.0/24", 26)
			n.store.ForgetCalls()
			addresses, err := n.add(n.call(invocation.Add, n.config(test.members...)))
			if test.code != 0 {
				wantCode(t, err, test.code, test.word)
				return
			}
			if err != nil || !strings.HasPrefix(addresses[0], test.want) {
				t.Fatalf("addresses %v, %v", addresses, err)
			}
			if calls := len(n.store.Calls()); calls > 3 {
				t.Errorf("%d calls for a first claim: %v", calls, n.store.Calls())
			}
		})
	}
}

func TestWindowsRules(t *testing.T) {
	t.Parallel()
	windows := func(t *testing.T, strict bool) *node {
		n := newNode(t)
		n.plugin.GOOS = "windows"
		n.store.Plant("/calico/ipam/v2/config", fmt.Sprintf(`{"strict_affinity":%v,"auto_allocate_blocks":true}`, strict))
		return n
	}
	t.Run("IPAM/55 strict affinity off: ADD refused, DEL works", func(t *testing.T) {
		t.Parallel()
		n := windows(t, true)
		n.mustAdd()
		n.store.Plant("/calico/ipam/v2/config", `{"auto_allocate_blocks":true}`)
		_, err := n.add(n.call(invocation.Add, n.config()))
		wantCode(t, err, cnierr.StrictAffinityNeeded, "global strict affinity should not be false for Windows node")
		for range 2 {
			if err := n.del(); err != nil {
				t.Fatal(err)
			}
		}
		if len(n.allocated()) != 0 {
			t.Errorf("allocated %v", n.allocated())
		}
	})
	t.Run("IPAM/56 the first address is behind the reserve", func(t *testing.T) {
		t.Parallel()
		if got := windows(t, true).mustAdd(); got[0] != "10.77.0.3/26" {
			t.Errorf("address %v", got)
		}
	})
	t.Run("a requested address keeps the block's mask", func(t *testing.T) {
		t.Parallel()
		n := windows(t, true)
		call := n.call(invocation.Add, n.config())
		call.Args = "IP=10.77.0.70"
		if got, err := n.add(call); err != nil || got[0] != "10.77.0.70/26" {
			t.Errorf("address %v, %v", got, err)
		}
	})
	t.Run("IPAM/62 a second block with windows_use_single_network", func(t *testing.T) {
		t.Parallel()
		n := windows(t, true)
		n.store.Uproot("/calico/resources/v3/projectcalico.org/ippools/pods")
		n.pool("small", "10.79.0.0/24", 29)
		for i := range 4 {
			call := n.call(invocation.Add, n.config("windows_use_single_network", true))
			call.ContainerID = fmt.Sprintf("c%d", i)
			if _, err := n.add(call); err != nil {
				t.Fatal(err)
			}
		}
		_, err := n.add(n.call(invocation.Add, n.config("windows_use_single_network", true)))
		wantCode(t, err, cnierr.BlockLimit, "cannot allocate new block due to per host block limit")
	})
}

func TestParallelAdds(t *testing.T) {
	t.Parallel()
	t.Run("IPAM/53 8 different addresses, one block", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		var group sync.WaitGroup
		errs := make(chan error, 8)
		for i := range 8 {
			group.Go(func() {
				call := n.call(invocation.Add, n.config())
				call.ContainerID = fmt.Sprintf("c%d", i)
				plugin := *n.plugin
				plugin.Stderr = &bytes.Buffer{}
				call.Deliver = func(types.Result) error { return nil }
				errs <- plugin.Add(deadline(t), call)
			})
		}
		group.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
		answers, err := n.store.Read(deadline(t), datastore.ListBlocks{Family: model.IPv4})
		if err != nil {
			t.Fatal(err)
		}
		if len(n.allocated()) != 8 || len(answers[0].Entries) != 1 {
			t.Errorf("allocated %v in %d blocks", n.allocated(), len(answers[0].Entries))
		}
	})
}
