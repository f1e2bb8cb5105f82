package operator

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// owned is a block of a host with its affinity in a state.
type owned struct {
	cidr, host string
	state      model.AffinityState
	// used are the addresses in use, and the node of each.
	used map[string]string
}

func (o owned) block() *model.Block {
	owner := ""
	if o.host != "" {
		owner = model.AffinityHost + ":" + o.host
	}
	block := model.NewBlock(netip.MustParsePrefix(o.cidr), owner, now, nil)
	for addr, node := range o.used {
		holder := model.Attribute{HandleID: "net." + addr}
		if node != "" {
			holder.Owner = map[string]string{"node": node}
		}
		if err := block.AllocateAddress(netip.MustParseAddr(addr), holder); err != nil {
			panic(err)
		}
	}
	return block
}

func (o owned) affinityKey() model.AffinityKey {
	return model.AffinityKey{Type: model.AffinityHost, Host: o.host, CIDR: netip.MustParsePrefix(o.cidr)}
}

// calicoNode is a node as etcd holds it; an address may be empty.
func calicoNode(t *testing.T, name, ipv4, ipv6 string) *model.Node {
	t.Helper()
	key := model.ResourceKey{Kind: model.KindNode, Name: name}
	node, err := model.Decode(key, []byte(`{"metadata":{"name":"`+name+`"},"spec":{"bgp":{"ipv4Address":"`+ipv4+`","ipv6Address":"`+ipv6+`"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return node.(*model.Node)
}

// threeNodes have IPv4 addresses and, but for c, IPv6 ones.
func threeNodes(t *testing.T) map[string]*model.Node {
	return map[string]*model.Node{
		"a": calicoNode(t, "a", "192.0.2.11/24", "2001:db8::11/64"),
		"b": calicoNode(t, "b", "192.0.2.12/24", "2001:db8::12/64"),
		"c": calicoNode(t, "c", "192.0.2.13/24", ""),
	}
}

func networkOf(nodes map[string]*model.Node, blocks ...owned) network {
	n := network{
		affinities: map[model.AffinityKey]*model.Affinity{}, blocks: map[netip.Prefix]*model.Block{}, nodes: nodes,
		unread: map[model.AffinityKey]string{},
	}
	for _, o := range blocks {
		block := o.block()
		n.blocks[block.CIDR] = block
		if o.host != "" && o.state != "none" {
			n.affinities[o.affinityKey()] = &model.Affinity{State: o.state}
		}
	}
	return n
}

func texts(found []route) []string {
	var out []string
	for _, r := range found {
		out = append(out, r.Destination.String()+" via "+r.Via.String())
	}
	return out
}

func TestRoutesOfANode(t *testing.T) {
	t.Parallel()
	confirmed := model.StateConfirmed
	for name, test := range map[string]struct {
		blocks   []owned
		want     []string
		problems []string
	}{
		"no block at all":              {},
		"a block of another node":      {blocks: []owned{{"10.77.0.0/26", "b", confirmed, nil}}, want: []string{"10.77.0.0/26 via 192.0.2.12"}},
		"its state by an old writer":   {blocks: []owned{{"10.77.0.0/26", "b", model.StateLegacy, nil}}, want: []string{"10.77.0.0/26 via 192.0.2.12"}},
		"an own block":                 {blocks: []owned{{"10.77.0.0/26", "a", confirmed, map[string]string{"10.77.0.1": "a"}}}},
		"a pending block":              {blocks: []owned{{"10.77.0.0/26", "b", model.StatePending, map[string]string{"10.77.0.1": "b"}}}},
		"a block about to be released": {blocks: []owned{{"10.77.0.0/26", "b", model.StatePendingDeletion, nil}}},
		"a block without affinity":     {blocks: []owned{{"10.77.0.0/26", "b", "none", nil}}},
		"both families, in order": {
			blocks: []owned{
				{"fd00:77::40/122", "b", confirmed, nil}, {"10.77.0.128/26", "c", confirmed, nil},
				{"10.77.0.64/26", "b", confirmed, nil}, {"10.77.0.0/26", "a", confirmed, nil},
			},
			want: []string{"10.77.0.64/26 via 192.0.2.12", "10.77.0.128/26 via 192.0.2.13", "fd00:77::40/122 via 2001:db8::12"},
		},
		"an address that another node borrowed": {
			blocks: []owned{{"10.77.0.0/26", "b", confirmed, map[string]string{"10.77.0.5": "c", "10.77.0.6": "b", "10.77.0.7": ""}}},
			want:   []string{"10.77.0.0/26 via 192.0.2.12", "10.77.0.5/32 via 192.0.2.13"},
		},
		"an address that this node borrowed": {
			blocks: []owned{{"10.77.0.0/26", "b", confirmed, map[string]string{"10.77.0.5": "a"}}},
			want:   []string{"10.77.0.0/26 via 192.0.2.12"},
		},
		"an address of an own block, borrowed": {
			blocks: []owned{{"fd00:77::40/122", "a", confirmed, map[string]string{"fd00:77::41": "b"}}},
			want:   []string{"fd00:77::41/128 via 2001:db8::12"},
		},
		"the addresses of a block without owner": {
			blocks: []owned{{"10.77.0.0/26", "", "none", map[string]string{"10.77.0.5": "b", "10.77.0.6": "a"}}},
			want:   []string{"10.77.0.5/32 via 192.0.2.12"},
		},
		"a node without an address of the family": {
			blocks:   []owned{{"fd00:77::40/122", "c", confirmed, nil}, {"fd00:77::80/122", "b", confirmed, nil}},
			want:     []string{"fd00:77::80/122 via 2001:db8::12"},
			problems: []string{"no route to fd00:77::40/122 on node c: the node has no IPv6 address; set projectcalico.org/IPv6Address of the Kubernetes Node, or spec.bgp.ipv6Address of Calico's"},
		},
		"nodes that are gone": {
			blocks: []owned{{"10.77.0.0/26", "gone", confirmed, nil}, {"10.77.0.64/26", "b", confirmed, map[string]string{"10.77.0.65": "lost"}}},
			want:   []string{"10.77.0.64/26 via 192.0.2.12"},
			problems: []string{
				"no route to 10.77.0.0/26 on node gone: the node does not exist; release what it left behind",
				"no route to 10.77.0.65/32 on node lost: the node does not exist; release what it left behind",
			},
		},
		"a node with this node's address": {
			blocks:   []owned{{"10.77.0.0/26", "twin", confirmed, nil}},
			problems: []string{"no route to 10.77.0.0/26 on node twin: it has the same address as node a, 192.0.2.11; correct one of them"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := threeNodes(t)
			nodes["twin"] = calicoNode(t, "twin", "192.0.2.11", "")
			found, problems := networkOf(nodes, test.blocks...).routes("a")
			if !slices.Equal(texts(found), test.want) {
				t.Errorf("routes %v, want %v", texts(found), test.want)
			}
			var told []string
			for _, p := range problems {
				told = append(told, p.String())
			}
			if !slices.Equal(told, test.problems) {
				t.Errorf("problems %q, want %q", told, test.problems)
			}
		})
	}
}

// TestNoRouteTo: what an entry of a block says, not its owner, leads nowhere.
func TestNoRouteTo(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr("10.77.0.5")
	holder := model.Attribute{HandleID: "net.x", Owner: map[string]string{"node": "c"}}
	for name, change := range map[string]func(n network, block *model.Block){
		"a service's address": func(n network, block *model.Block) {
			block.Affinity = "virtual:load-balancer"
			n.affinities[model.AffinityKey{Type: model.AffinityVirtual, Host: "load-balancer", CIDR: block.CIDR}] = &model.Affinity{State: model.StateConfirmed}
		},
		"an address that cools down": func(_ network, block *model.Block) {
			ordinal, _ := block.Ordinal(addr)
			block.Release([]int{ordinal}, now, 1<<40)
		},
		"the block of a node that another owns": func(n network, block *model.Block) {
			block.Affinity = "host:c"
			n.affinities[model.AffinityKey{Type: model.AffinityHost, Host: "b", CIDR: block.CIDR}] = &model.Affinity{State: model.StateConfirmed}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := owned{"10.77.0.0/26", "a", model.StateConfirmed, nil}
			n := networkOf(threeNodes(t), o)
			block := n.blocks[o.block().CIDR]
			if err := block.AllocateAddress(addr, holder); err != nil {
				t.Fatal(err)
			}
			change(n, block)
			if found, problems := n.routes("a"); len(found)+len(problems) != 0 {
				t.Errorf("routes %v, problems %v", found, problems)
			}
		})
	}
}

// planted is a store with nodes a, b and c, a block of each, an address of b's
// that c uses, and an IPv6 block of c, which has no IPv6 address.
func planted(t *testing.T) *memory.Store {
	t.Helper()
	store := memory.New(memory.Options{})
	var step datastore.Step
	for name, node := range threeNodes(t) {
		step = append(step, datastore.Put(model.ResourceKey{Kind: model.KindNode, Name: name}, node, datastore.Absent))
	}
	for _, o := range []owned{
		{"10.77.0.0/26", "a", model.StateConfirmed, nil},
		{"10.77.0.64/26", "b", model.StateConfirmed, map[string]string{"10.77.0.65": "c"}},
		{"10.77.0.128/26", "c", model.StateConfirmed, nil},
		{"fd00:77::40/122", "c", model.StateConfirmed, nil},
	} {
		step = append(step,
			datastore.Put(model.BlockKey{CIDR: o.affinityKey().CIDR}, o.block(), datastore.Absent),
			datastore.Put(o.affinityKey(), &model.Affinity{State: o.state}, datastore.Absent))
	}
	if _, err := store.Write(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	return store
}

const noIPv6 = "no route to fd00:77::40/122 on node c: the node has no IPv6 address"

func TestRoutesCommand(t *testing.T) {
	t.Parallel()
	store := planted(t)
	before := store.Dump()
	const ofB = "ip route replace 10.77.0.0/26 via 192.0.2.11\nip route replace 10.77.0.65/32 via 192.0.2.13\nip route replace 10.77.0.128/26 via 192.0.2.13\n"
	const ofA = "ip route replace 10.77.0.64/26 via 192.0.2.12\nip route replace 10.77.0.65/32 via 192.0.2.13\nip route replace 10.77.0.128/26 via 192.0.2.13\n"
	const ofC = "ip route replace 10.77.0.0/26 via 192.0.2.11\nip route replace 10.77.0.64/26 via 192.0.2.12\n"
	for name, test := range map[string]struct {
		args   []string
		exit   int
		want   string
		stderr string
	}{
		"a node":           {[]string{"--node=c"}, exitFine, ofC, ""},
		"with a problem":   {[]string{"--node", "b"}, exitProblems, ofB, noIPv6},
		"all":              {[]string{"--all"}, exitProblems, "# on node \"a\"\n" + ofA + "# on node \"b\"\n" + ofB + "# on node \"c\"\n" + ofC, noIPv6},
		"with a protocol":  {[]string{"--node=c", "--protocol=80"}, exitFine, strings.ReplaceAll(ofC, "\n", " proto 80\n"), ""},
		"for Windows":      {[]string{"--node=c", "-o", "powershell"}, exitFine, powershellOfC, ""},
		"of an absent one": {[]string{"--node=x"}, exitCannotRun, "", "node x does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exit, stdout, stderr := run(t, store, append([]string{"routes"}, test.args...)...)
			if exit != test.exit || stdout != test.want || !strings.Contains(stderr, test.stderr) || (stderr == "") != (test.stderr == "") {
				t.Errorf("exit %d, want %d; stderr %q, want %q; stdout\n%swant\n%s", exit, test.exit, stderr, test.stderr, stdout, test.want)
			}
			if strings.Count(stderr, noIPv6) > 1 {
				t.Errorf("a problem is told more than once: %s", stderr)
			}
		})
	}
	t.Cleanup(func() {
		if store.Dump() != before {
			t.Error("routes changed the datastore")
		}
	})
}

const powershellOfC = "" +
	"Remove-NetRoute -DestinationPrefix 10.77.0.0/26 -PolicyStore ActiveStore -Confirm:$false -ErrorAction SilentlyContinue; New-NetRoute -DestinationPrefix 10.77.0.0/26 -NextHop 192.0.2.11 -InterfaceIndex @(Find-NetRoute -RemoteIPAddress 192.0.2.11)[0].InterfaceIndex -PolicyStore ActiveStore\n" +
	"Remove-NetRoute -DestinationPrefix 10.77.0.64/26 -PolicyStore ActiveStore -Confirm:$false -ErrorAction SilentlyContinue; New-NetRoute -DestinationPrefix 10.77.0.64/26 -NextHop 192.0.2.12 -InterfaceIndex @(Find-NetRoute -RemoteIPAddress 192.0.2.12)[0].InterfaceIndex -PolicyStore ActiveStore\n"

func TestRoutesAsJSON(t *testing.T) {
	t.Parallel()
	exit, stdout, _ := run(t, planted(t), "routes", "--node=a", "-o", "json")
	var doc struct {
		Nodes []struct {
			Node   string
			Routes []struct{ Destination, Via, Node string }
		}
		Problems []struct{ Destination, Node, Reason string }
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if exit != exitProblems || len(doc.Nodes) != 1 || doc.Nodes[0].Node != "a" || len(doc.Nodes[0].Routes) != 3 ||
		doc.Nodes[0].Routes[1] != struct{ Destination, Via, Node string }{"10.77.0.65/32", "192.0.2.13", "c"} ||
		len(doc.Problems) != 1 || doc.Problems[0].Destination != "fd00:77::40/122" || doc.Problems[0].Node != "c" || doc.Problems[0].Reason == "" {
		t.Errorf("exit %d, document %s", exit, stdout)
	}
	_, empty, _ := run(t, planted(t), "routes", "--node=c", "-o", "json")
	if !strings.Contains(empty, `"problems": []`) {
		t.Errorf("no problems are no list: %s", empty)
	}
}

// TestRoutesPassOverBlocks: what one block lacks keeps no other from its route.
func TestRoutesPassOverBlocks(t *testing.T) {
	t.Parallel()
	store := planted(t)
	store.Plant("/calico/ipam/v2/host/c/ipv4/block/10.77.0.192-26", `{"state":"confirmed"}`)
	store.Plant("/calico/ipam/v2/assignment/ipv4/block/10.77.0.64-26", `{"cidr":"10.77.0.64/26"}`)
	exit, stdout, stderr := run(t, store, "routes", "--node=a")
	if exit != exitProblems || stdout != "ip route replace 10.77.0.128/26 via 192.0.2.13\n" ||
		!strings.Contains(stderr, "10.77.0.192/26 on node c: the node has a confirmed affinity for the block, but the block does not exist") ||
		!strings.Contains(stderr, "10.77.0.64/26 on node b: the block cannot be read: ") {
		t.Errorf("exit %d, stdout %q, stderr %q", exit, stdout, stderr)
	}
}

func TestRoutesCannotRun(t *testing.T) {
	t.Parallel()
	store := planted(t)
	for flags, word := range map[string]string{
		"--all --node=a":              "use one of them",
		"-o table":                    "use ip, powershell or json",
		"--protocol=80 -o json":       "only -o ip",
		"--protocol=x;reboot":         "rt_protos",
		"--node=a b":                  `argument "b"`,
		"--show-blocks":               "show-blocks",
		"--config /absent":            "/absent",
		"--node=this-node-is-unknown": "this-node-is-unknown",
	} {
		exit, stdout, stderr := run(t, store, append([]string{"routes"}, strings.Fields(flags)...)...)
		if exit != exitCannotRun || stdout != "" || !strings.Contains(stderr, word) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q, want the word %q", flags, exit, stdout, stderr, word)
		}
	}
	for fails := range 3 {
		down := planted(t)
		calls := 0
		down.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if calls++; calls > fails {
				return memory.Down(call)
			}
			return nil
		}})
		found, err := routesOf(t.Context(), down, "a")
		if read := 2; (err == nil) != (fails >= read) || err != nil && !errors.Is(err, datastore.ErrUnavailable) {
			t.Errorf("datastore down after %d reads: %v, %v", fails, found, err)
		}
	}
}

func TestRoutesForm(t *testing.T) {
	t.Parallel()
	for goos, want := range map[string]string{"linux": formIP, "windows": formPowerShell} {
		if o, err := parseRoutes(Process{Args: []string{"routes"}, GOOS: goos}); err != nil || o.form != want {
			t.Errorf("%s: form %q, %v, want %q", goos, o.form, err, want)
		}
	}
}

// TestRoutesRounds: a cluster is read in two rounds, whatever its size.
func TestRoutesRounds(t *testing.T) {
	t.Parallel()
	store := planted(t)
	if _, err := routesOf(t.Context(), store, "a"); err != nil || store.Reads() != 2 {
		t.Errorf("%d reads, %v", store.Reads(), err)
	}
	if _, err := routesOf(t.Context(), store, ""); err != nil || store.Reads() != 3 {
		t.Errorf("%d reads with those of all nodes, %v", store.Reads(), err)
	}
}
