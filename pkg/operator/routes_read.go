package operator

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// readNetwork reads what the routes of a node follow from; of all nodes if it
// is empty. The plugins' role may get Nodes but not list them (data store
// contract 7), so only the routes of all nodes need that right.
func readNetwork(ctx context.Context, store datastore.Store, node string) (network, error) {
	queries := []datastore.Query{
		datastore.ListAffinities{Type: model.AffinityHost, Family: model.IPv4},
		datastore.ListAffinities{Type: model.AffinityHost, Family: model.IPv6},
		datastore.ListBlocks{Family: model.IPv4},
		datastore.ListBlocks{Family: model.IPv6},
	}
	if node == "" {
		queries = append(queries, datastore.ListResources{Kind: model.KindNode})
	} else {
		queries = append(queries, nodeGet(node))
	}
	n := network{
		affinities: map[model.AffinityKey]*model.Affinity{}, blocks: map[netip.Prefix]*model.Block{},
		nodes: map[string]*model.Node{}, unread: map[model.AffinityKey]string{},
	}
	if err := n.read(ctx, store, queries); err != nil {
		return n, err
	}
	if err := n.read(ctx, store, n.unlisted()); err != nil {
		return n, err
	}
	n.readMissing(ctx, store)
	var nodes []datastore.Query
	for _, name := range n.neededNodes() {
		if n.nodes[name] == nil && node != "" {
			nodes = append(nodes, nodeGet(name))
		}
	}
	return n, n.read(ctx, store, nodes)
}

func nodeGet(name string) datastore.Query {
	return datastore.Get{Key: model.ResourceKey{Kind: model.KindNode, Name: name}}
}

func (n network) read(ctx context.Context, store datastore.Store, queries []datastore.Query) error {
	if len(queries) == 0 {
		return nil
	}
	answers, err := store.Read(ctx, queries...)
	if err != nil {
		return err
	}
	for _, answer := range answers {
		for _, entry := range answer.Entries {
			n.keep(entry)
		}
	}
	return nil
}

func (n network) keep(entry datastore.Entry) {
	switch value := entry.Value.(type) {
	case *model.Affinity:
		n.affinities[entry.Key.(model.AffinityKey)] = value
	case *model.Block:
		n.blocks[value.CIDR] = value
	case *model.Node:
		n.nodes[value.Metadata.Name] = value
	}
}

// unlisted asks for the affinities of blocks that have an owner, but no
// affinity in the lists: old releases wrote ones without the labels by which
// Kubernetes lists them (data store contract 4.3).
func (n network) unlisted() []datastore.Query {
	var queries []datastore.Query
	for _, cidr := range slices.SortedFunc(maps.Keys(n.blocks), netip.Prefix.Compare) {
		host, ofHost := strings.CutPrefix(n.blocks[cidr].Affinity, model.AffinityHost+":")
		key := model.AffinityKey{Type: model.AffinityHost, Host: host, CIDR: cidr}
		if ofHost && n.affinities[key] == nil {
			queries = append(queries, datastore.Get{Key: key})
		}
	}
	return queries
}

// readMissing asks again for the blocks of confirmed affinities that the lists
// do not hold: claimed between the two lists, or left out because they make no
// sense. One that cannot be read must not keep the others from their routes.
func (n network) readMissing(ctx context.Context, store datastore.Store) {
	for key, affinity := range n.affinities {
		if n.blocks[key.CIDR] != nil || !affinity.State.Confirmed() {
			continue
		}
		err := n.read(ctx, store, []datastore.Query{datastore.Get{Key: model.BlockKey{CIDR: key.CIDR}}})
		switch {
		case err != nil:
			n.unread[key] = fmt.Sprintf("the block cannot be read: %v", err)
		case n.blocks[key.CIDR] == nil:
			n.unread[key] = "the node has a confirmed affinity for the block, but the block does not exist; the node's next new pod claims it or lets it go"
		}
	}
}
