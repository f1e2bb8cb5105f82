//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"calico-cni/pkg/datastore"
	etcdstore "calico-cni/pkg/datastore/etcd"
	"calico-cni/pkg/model"
	"calico-cni/test/bench/runner/job"
)

// The engines.
const (
	etcd     = "etcd"
	embedded = "embedded"
)

const (
	network = "net"
	node    = "node-1"
	// The pool has 65,536 blocks: with the most that the benchmark adds it is
	// far from half used.
	pool = "10.64.0.0/10"
	// Both engines have pods on the one host.
	embeddedPool = "10.128.0.0/10"
	blockBits    = 26
	// batch is how many objects a transaction may write (design 3).
	batch = 100
)

// fill makes the objects of a cluster with one node.
func (s *stage) fill() error {
	ready := true
	information := &model.ClusterInformation{
		Metadata: model.Metadata{Name: model.ClusterInformationName}, GUID: "1234", Ready: &ready,
	}
	addresses := &model.IPPool{Metadata: model.Metadata{Name: "pool"}, RawCIDR: pool}
	addresses.ApplyDefaults()
	return s.put(datastore.Step{
		datastore.Put(model.ResourceKey{Kind: model.KindClusterInformation, Name: model.ClusterInformationName}, information, datastore.Absent),
		datastore.Put(model.ResourceKey{Kind: model.KindIPPool, Name: "pool"}, addresses, datastore.Absent),
	}, nodesNamed(node))
}

func nodesNamed(names ...string) datastore.Step {
	var step datastore.Step
	for _, name := range names {
		step = append(step, datastore.Put(model.ResourceKey{Kind: model.KindNode, Name: name},
			&model.Node{Metadata: model.Metadata{Name: name}}, datastore.Absent))
	}
	return step
}

// crowd adds half-full blocks of other nodes, from one number to another.
func (s *stage) crowd(from, to int) error {
	var step datastore.Step
	for i := from; i < to; i++ {
		step = append(step, othersBlock(i)...)
		if len(step) >= batch || i == to-1 {
			if err := s.put(step); err != nil {
				return err
			}
			step = nil
		}
	}
	return nil
}

func othersBlock(i int) datastore.Step {
	host := fmt.Sprintf("other-%d", i)
	size := 1 << (32 - blockBits)
	at := i * size
	cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + at>>16), byte(at >> 8), byte(at)}), blockBits)
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

func (s *stage) put(steps ...datastore.Step) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store, err := etcdstore.Open(ctx, etcdstore.Options{Endpoints: []string{s.server.Endpoint}})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Write(ctx, steps...); err != nil {
		return fmt.Errorf("filling etcd: %w", err)
	}
	return nil
}

// configuration is the network's, of one node.
func (s *stage) configuration(engine, node string) ([]byte, error) {
	document := map[string]any{
		"cniVersion": "1.1.0", "name": network, "type": "calico",
		"nodename": node, "nodename_file_optional": true,
		// Nodes do not wait for each other.
		"ipam_lock_file": "/run/" + node + "/ipam.lock",
		"ipam":           map[string]any{"type": "calico-ipam"},
	}
	if engine == etcd {
		document["etcd_endpoints"] = s.server.Endpoint
	} else {
		document["pools"] = []any{map[string]any{"cidr": embeddedPool}}
	}
	return json.Marshal(document)
}

// call is one execution of a plugin by a runtime.
type call struct {
	plugin, verb, engine, node string
	pod                        pod
}

func (s *stage) command(c call) (job.Command, error) {
	document, err := s.configuration(c.engine, c.node)
	return job.Command{
		Path: s.plugins + "/" + c.plugin,
		Environment: []string{
			"CNI_COMMAND=" + c.verb, "CNI_PATH=" + s.plugins, "CNI_CONTAINERID=" + c.pod.name,
			"CNI_IFNAME=eth0", "CNI_NETNS=" + c.pod.path(),
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
