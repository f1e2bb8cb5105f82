package upgrade

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
)

// tries is how often an object is changed that others change as well.
const tries = 5

// tunnel books the address of the node's IPIP tunnel and tells the node.
func (m *move) tunnel(ctx context.Context) error {
	node, err := change(ctx, m.store, model.ResourceKey{Kind: model.KindNode, Name: m.Node}, func(node *model.Node) (*model.Node, error) {
		addr, needed := tunnelAddress(node)
		if !needed {
			return nil, nil
		}
		attributes := map[string]string{"node": m.Node, "type": "ipipTunnelAddress"}
		if err := m.book(ctx, addr, "ipip-tunnel-addr-"+m.Node, attributes); err != nil {
			return nil, fmt.Errorf("booking address %s of the IPIP tunnel of node %s: %w", addr, m.Node, err)
		}
		return node.WithIPIPTunnel(addr.String())
	})
	if err == nil && node.IPIPTunnel() != "" {
		m.Log.Info("the node's IPIP tunnel has an address", "node", m.Node, "address", node.IPIPTunnel())
	}
	return err
}

// book takes an address. One that is taken already was so by an earlier try, or
// is somebody else's, who cannot be asked to give it back.
func (m *move) book(ctx context.Context, addr netip.Addr, handleID string, attributes map[string]string) error {
	_, err := m.allocator.AssignAddress(ctx, ipam.AddressRequest{Addr: addr, Host: m.Node, HandleID: handleID, Attributes: attributes})
	if !errors.Is(err, model.ErrAddressTaken) {
		return err
	}
	held, lookErr := m.allocator.AddressesByHandle(ctx, handleID)
	if lookErr != nil && !errors.Is(lookErr, datastore.ErrNotFound) {
		return lookErr
	}
	if !slices.Contains(held, addr) {
		m.Log.Warn("an address in use is booked under another handle", "address", addr, "handle", handleID, "owner", attributes)
	}
	return nil
}

// makeReady returns the step that lets the plugins of the cluster work, or not.
func (m *move) makeReady(ready bool) func(context.Context) error {
	return func(ctx context.Context) error {
		key := model.ResourceKey{Kind: model.KindClusterInformation, Name: model.ClusterInformationName}
		_, err := change(ctx, m.store, key, func(information *model.ClusterInformation) (*model.ClusterInformation, error) {
			if information.Ready != nil && *information.Ready == ready {
				return nil, nil
			}
			changed := *information
			changed.Ready = &ready
			return &changed, nil
		})
		if err == nil {
			m.Log.Info("the cluster's datastore is set", "datastoreReady", ready)
		}
		return err
	}
}

// change updates an object that must exist with what edit makes of it; nil
// leaves it as it is. It returns what the object is then.
func change[T any](ctx context.Context, store datastore.Store, key model.ResourceKey, edit func(*T) (*T, error)) (*T, error) {
	var failed error
	for range tries {
		answers, err := store.Read(ctx, datastore.Get{Key: key})
		if err != nil {
			return nil, err
		}
		value, revision := datastore.One[T](answers[0])
		if value == nil {
			return nil, cnierr.New(cnierr.TryAgainLater, "%s: %w; it is made when the cluster is installed", key, datastore.ErrNotFound)
		}
		changed, err := edit(value)
		if err != nil {
			return nil, err
		}
		if changed == nil {
			return value, nil
		}
		_, failed = store.Write(ctx, datastore.Step{datastore.Put(key, changed, revision)})
		if failed == nil {
			return changed, nil
		}
		unknown := datastore.ReasonOf(failed) == datastore.OutcomeUnknown
		if errors.Is(failed, datastore.ErrUnavailable) && !unknown {
			return nil, failed
		}
	}
	return nil, fmt.Errorf("changing the %s, tried %d times: %w", key, tries, failed)
}

// pods are those of this node.
func (m *move) pods(ctx context.Context) ([]*model.Pod, error) {
	answers, err := m.store.Read(ctx, datastore.ListResources{Kind: model.KindPod, OnNode: m.Node})
	if err != nil {
		return nil, err
	}
	var pods []*model.Pod
	for _, entry := range answers[0].Entries {
		if pod, ok := entry.Value.(*model.Pod); ok && pod.Node == m.Node {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}
