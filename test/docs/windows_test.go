package docs

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/workload"
	"calico-cni/windows"
	"calico-cni/windows/hns"
	"calico-cni/windows/hnssim"
)

func windowsDocument(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/windows.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rows are those of the first table of a section, split into cells.
func rows(t *testing.T, document, heading string) [][]string {
	t.Helper()
	_, section, found := strings.Cut(document, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("there is no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var table [][]string
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") {
			if len(table) > 0 {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		table = append(table, cells)
	}
	if len(table) < 3 {
		t.Fatalf("section %q has no table", heading)
	}
	return table[2:]
}

// TestWindowsBlockSizes computes the table of pods per block from what the
// plugin asks of the allocator.
func TestWindowsBlockSizes(t *testing.T) {
	t.Parallel()
	var want [][]string
	for bits := 24; bits <= 29; bits++ {
		block := model.NewBlock(netip.PrefixFrom(netip.MustParseAddr("10.48.0.0"), bits), "host:win-1", time.Unix(0, 0), ipam.WindowsReservation())
		free := block.Available(func(netip.Addr) bool { return false })
		want = append(want, []string{fmt.Sprint(bits), fmt.Sprint(free)})
	}
	if got := rows(t, windowsDocument(t), "How many pods a node can have"); !reflect.DeepEqual(got, want) {
		t.Errorf("the table says\n%v\nthe allocator gives\n%v", got, want)
	}
}

// TestWindowsFlags compares the table of keys with those of the configuration.
func TestWindowsFlags(t *testing.T) {
	t.Parallel()
	var want, got []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[netconf.WindowsConfig]()) {
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		want = append(want, "`"+key+"`")
	}
	for _, row := range rows(t, windowsDocument(t), "Flags and what they cost") {
		got = append(got, row[0])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the table has\n%v\nthe configuration\n%v", got, want)
	}
}

// TestWindowsMessages looks for the messages that are quoted in the code.
func TestWindowsMessages(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, folder := range []string{"../../windows", "../../pkg/plugin"} {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	quoted := regexp.MustCompile("`([a-z][a-z' ]+ [a-z' ]+(:[a-z ]+)?)`").FindAllStringSubmatch(windowsDocument(t), -1)
	for _, message := range quoted {
		if message[1] != "calico install" && !strings.Contains(code.String(), message[1]) {
			t.Errorf("no message says %q", message[1])
		}
	}
	if len(quoted) < 6 {
		t.Errorf("only %d messages are quoted: does this test still find them?", len(quoted))
	}
}

// reconfigured is a change of the table of what needs a drain.
type reconfigured struct {
	options func(*windows.Options)
	request func(*dataplane.Request)
}

// reconfigurations are the changes, by their name in the table.
func reconfigurations() map[string]reconfigured {
	return map[string]reconfigured{
		"`mode`": {options: func(o *windows.Options) { o.Overlay = false }},
		"subnet of the node, with a single network": {request: func(r *dataplane.Request) {
			r.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.48.7.4/26")}
		}},
		"`windows_use_single_network`": {options: func(o *windows.Options) { o.SingleNetwork = false }},
		"`vxlan_vni`":                  {options: func(o *windows.Options) { o.VNI = 5000 }},
		"`natOutgoing` or CIDR of a pool": {request: func(r *dataplane.Request) {
			r.Pools = []dataplane.Pool{{Name: "pods", CIDR: netip.MustParsePrefix("10.48.0.0/17"), IPIPMode: "Never", VXLANMode: "Always"}}
		}},
		"`policies`": {options: func(o *windows.Options) {
			o.Policies = []json.RawMessage{json.RawMessage(`{"Type":"SDNRoute","DestinationPrefix":"10.99.0.0/16","NeedEncap":true}`)}
		}},
		"`windows_disable_host_subnet_nat_exclusion`": {options: func(o *windows.Options) { o.DisableHostSubnetNATExclusion = true }},
		"`windows_disable_default_deny_all_policy`":   {options: func(o *windows.Options) { o.DisableDefaultDeny = true }},
		"`windows_loopback_DSR`":                      {options: func(o *windows.Options) { o.LoopbackDSR = true }},
		"`vxlan_mac_prefix`":                          {options: func(o *windows.Options) { o.MACPrefix = "0E-2B" }},
		"DNS":                                         {request: func(r *dataplane.Request) { r.DNS.Servers = []string{"10.99.0.10"} }},
	}
}

// TestWindowsDrains makes each change of the table under a running pod.
func TestWindowsDrains(t *testing.T) {
	t.Parallel()
	known := reconfigurations()
	for _, row := range rows(t, windowsDocument(t), "What needs a drain") {
		change, ok := known[row[0]]
		if !ok {
			t.Errorf("the change %s is not tried", row[0])
			continue
		}
		delete(known, row[0])
		t.Run(strings.Trim(row[0], "`"), func(t *testing.T) {
			t.Parallel()
			change.try(t, row[1])
		})
	}
	for name := range known {
		t.Errorf("the table lacks %s", name)
	}
}

// try makes the change and compares what the next ADD does with what is said
// about it. The pod that is there is never touched.
func (c reconfigured) try(t *testing.T, said string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	engine := hnssim.New()
	options := windows.Options{Name: "Calico", Overlay: true, MACPrefix: "0E-2A", SingleNetwork: true,
		Service: engine.Service(), Host: engine.Host(), Pause: engine.Pause}
	add := func(container, address string, change func(*dataplane.Request)) error {
		sandbox, err := engine.Service().CreateNamespace(ctx, hns.Namespace{Type: "Host", SchemaVersion: hns.Schema2()})
		if err != nil {
			t.Fatal(err)
		}
		r := dataplane.Request{
			Attachment: workload.Attachment{Network: "Calico", ContainerID: container, IfName: "eth0"},
			Namespace:  sandbox.ID, Prefixes: []netip.Prefix{netip.MustParsePrefix(address)},
			Pools: []dataplane.Pool{{Name: "pods", CIDR: netip.MustParsePrefix("10.48.0.0/16"), NATOutgoing: true, IPIPMode: "Never", VXLANMode: "Always"}},
		}
		if change != nil {
			change(&r)
		}
		_, err = windows.New(options).Add(ctx, r)
		return err
	}
	if err := add("running", "10.48.5.68/26", nil); err != nil {
		t.Fatal(err)
	}
	before, err := engine.Service().EndpointsByName(ctx, "running_Calico")
	if err != nil {
		t.Fatal(err)
	}
	if c.options != nil {
		c.options(&options)
	}
	err = add("next", "10.48.5.69/26", c.request)
	switch {
	case strings.HasPrefix(said, "fails, code 112"):
		if cnierr.CodeOf(err) != cnierr.DrainNeeded {
			t.Errorf("ADD: %v, want code 112", err)
		}
	case strings.HasPrefix(said, "works"):
		if err != nil {
			t.Errorf("ADD: %v", err)
		}
	default:
		t.Errorf("the table says %q", said)
	}
	after, err := engine.Service().EndpointsByName(ctx, "running_Calico")
	if err != nil || len(after) != 1 || !hns.SameID(before[0].ID, after[0].ID) || !reflect.DeepEqual(before[0].Policies, after[0].Policies) ||
		!hns.SameID(before[0].HostComputeNamespace, after[0].HostComputeNamespace) {
		t.Errorf("the running pod had %+v, has %+v, %v", before, after, err)
	}
}
