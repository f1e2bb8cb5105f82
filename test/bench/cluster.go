//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/test/bench/runner/job"
)

const (
	network = "net"
	node    = "node-1"
	// The pool has 65,536 blocks: with the most that the benchmark adds it is
	// far from half used.
	pool      = "10.64.0.0/10"
	blockBits = 26
	// batch is how many blocks are filled in at once, each with its affinity: a
	// transaction of etcd has room for 128 operations.
	batch = 50
	// patience is how long a step of the preparation may take.
	patience = 5 * time.Minute
)

// engine is a datastore that the plugins are measured on.
type engine interface {
	name() string
	// configure names the datastore in a network's configuration.
	configure(document map[string]any)
	// traffic is what the server has done since it started: the calls that it
	// answered, and the bytes that it moved; -1: there is no server.
	traffic() (calls, bytes int, err error)
	// shared is what other nodes use too; nil: nobody does.
	shared() *cluster
	// arguments are the CNI_ARGS of a pod, which is made and removed.
	arguments(p pod) string
	makePod(p pod, node string) error
	removePod(p pod) error
}

// cluster is the data of many nodes in one datastore.
type cluster struct {
	open func(context.Context) (datastore.Store, error)
	// nodes makes Node objects.
	nodes func(names ...string) error
	// blocks is how many blocks of other nodes there are.
	blocks int
}

// clusterObjects are the objects of a cluster beside its nodes.
func clusterObjects() datastore.Step {
	ready := true
	information := &model.ClusterInformation{
		Metadata: model.Metadata{Name: model.ClusterInformationName}, GUID: "1234", Ready: &ready,
	}
	addresses := &model.IPPool{Metadata: model.Metadata{Name: "pool"}, RawCIDR: pool}
	addresses.ApplyDefaults()
	return datastore.Step{
		datastore.Put(model.ResourceKey{Kind: model.KindClusterInformation, Name: model.ClusterInformationName}, information, datastore.Absent),
		datastore.Put(model.ResourceKey{Kind: model.KindIPPool, Name: "pool"}, addresses, datastore.Absent),
	}
}

// crowd adds half-full blocks of other nodes until there are so many. Blocks
// that the benchmark's own nodes have claimed are left to them.
func (c *cluster) crowd(blocks int) error {
	for ; c.blocks < blocks; c.blocks += batch {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := c.fill(ctx, c.blocks, min(blocks, c.blocks+batch))
		cancel()
		if err != nil {
			return fmt.Errorf("filling the datastore: %w", err)
		}
	}
	return nil
}

// fill adds the blocks from one number to another.
func (c *cluster) fill(ctx context.Context, from, to int) error {
	store, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	queries := make([]datastore.Query, to-from)
	for i := range queries {
		queries[i] = datastore.Get{Key: model.BlockKey{CIDR: othersCIDR(from + i)}}
	}
	present, err := store.Read(ctx, queries...)
	if err != nil {
		return err
	}
	var step datastore.Step
	for i := range queries {
		if len(present[i].Entries) == 0 {
			step = append(step, othersBlock(from+i)...)
		}
	}
	_, err = store.Write(ctx, step)
	return err
}

func othersCIDR(i int) netip.Prefix {
	at := i << (32 - blockBits)
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + at>>16), byte(at >> 8), byte(at)}), blockBits)
}

func othersBlock(i int) datastore.Step {
	host := fmt.Sprintf("other-%d", i)
	cidr := othersCIDR(i)
	size := 1 << (32 - blockBits)
	block := model.NewBlock(cidr, "host:"+host, time.Now(), nil)
	for j := range size / 2 {
		block.Allocate(1, model.Attribute{
			HandleID: fmt.Sprintf("%s.%064x", network, i*size+j),
			Owner: map[string]string{
				"node": host, "namespace": "default", "pod": fmt.Sprintf("web-%d-%d", i, j),
				"timestamp": time.Now().UTC().String(),
			},
		}, nil)
	}
	return datastore.Step{
		datastore.Put(model.BlockKey{CIDR: cidr}, block, datastore.Absent),
		datastore.Put(model.AffinityKey{Type: model.AffinityHost, Host: host, CIDR: cidr},
			&model.Affinity{State: model.StateConfirmed}, datastore.Absent),
	}
}

func (c *cluster) put(steps ...datastore.Step) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	store, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Write(ctx, steps...); err != nil {
		return fmt.Errorf("filling the datastore: %w", err)
	}
	return nil
}

// configuration is the network's, of one node.
func configuration(e engine, node string) ([]byte, error) {
	document := map[string]any{
		"cniVersion": "1.1.0", "name": network, "type": "calico",
		"nodename": node, "nodename_file_optional": true,
		// Nodes do not wait for each other.
		"ipam_lock_file": "/run/" + node + "/ipam.lock",
		"ipam":           map[string]any{"type": "calico-ipam"},
	}
	e.configure(document)
	return json.Marshal(document)
}

// call is one execution of a plugin by a runtime.
type call struct {
	plugin, verb string
	engine       engine
	node         string
	pod          pod
}

func (s *stage) command(c call) (job.Command, error) {
	document, err := configuration(c.engine, c.node)
	return job.Command{
		Path: s.plugins + "/" + c.plugin,
		Environment: []string{
			"CNI_COMMAND=" + c.verb, "CNI_PATH=" + s.plugins, "CNI_CONTAINERID=" + c.pod.name,
			"CNI_IFNAME=eth0", "CNI_NETNS=" + c.pod.path(), "CNI_ARGS=" + c.engine.arguments(c.pod),
		},
		Stdin: document,
	}, err
}

func (s *stage) commands(calls ...call) ([]job.Command, error) {
	commands := make([]job.Command, len(calls))
	for i, c := range calls {
		var err error
		if commands[i], err = s.command(c); err != nil {
			return nil, err
		}
	}
	return commands, nil
}
