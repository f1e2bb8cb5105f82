package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// How often publishing the tunnel is tried, and the wait between (Windows data
// plane contract 8).
const (
	tunnelTries = 3
	tunnelPause = time.Second
)

// modeVXLAN is the one mode whose networks other nodes tunnel to.
const modeVXLAN = "vxlan"

func (s *serving) publishesTunnel() bool { return s.windows() && s.Conf.Mode == modeVXLAN }

func (s *serving) nodeKey() model.Key {
	return model.ResourceKey{Kind: model.KindNode, Name: s.ID.Node}
}

// publishTunnel tells the other nodes where this one's VXLAN tunnels end. A
// failure is only logged: the pod is connected, and the next ADD tries again.
func (a *addition) publishTunnel(ctx context.Context, link dataplane.Link) {
	if !a.publishesTunnel() {
		return
	}
	tunnels := link.Tunnels
	for try := range tunnelTries {
		if try > 0 {
			if a.plugin.wait(ctx, tunnelPause) != nil {
				return
			}
		}
		var err error
		if len(tunnels) == 0 {
			tunnels, err = a.dataplane.Tunnels(ctx, link)
		}
		if err == nil && len(tunnels) > 0 {
			err = a.writeTunnel(ctx, tunnels)
		}
		if err == nil {
			return
		}
		if errors.Is(err, datastore.ErrUnavailable) && datastore.ReasonOf(err) == datastore.Refused {
			a.Log.Error("the end of this node's VXLAN tunnels is not published, because this account may not write nodes: give it the rights of the node agent", "error", err)
			return
		}
		a.Log.Error("the end of this node's VXLAN tunnels is not published: other nodes cannot reach its pods", "try", try+1, "error", err)
	}
}

// writeTunnel writes the Node if it says something else. The batch's Node is
// good for the first try only.
func (a *addition) writeTunnel(ctx context.Context, tunnels []dataplane.Tunnel) error {
	answer := a.node
	a.node = datastore.Answer{}
	if len(answer.Entries) == 0 {
		answers, err := a.Store.Read(ctx, datastore.Get{Key: a.nodeKey()})
		if err != nil {
			return err
		}
		answer = answers[0]
	}
	node, revision := datastore.One[model.Node](answer)
	if node == nil {
		return fmt.Errorf("node %s does not exist in the datastore: correct nodename, or let the node agent register it", a.ID.Node)
	}
	address, mac := node.VXLANTunnel()
	wanted := wantedTunnel(address, tunnels)
	if wanted.Address.String() == address && wanted.MAC == mac {
		return nil
	}
	changed, err := node.WithVXLANTunnel(wanted.Address.String(), wanted.MAC)
	if err != nil {
		return err
	}
	if _, err := a.Store.Write(ctx, datastore.Step{datastore.Put(a.nodeKey(), changed, revision)}); err != nil {
		return err
	}
	a.Log.Info("published the end of this node's VXLAN tunnels", "address", wanted.Address, "mac", wanted.MAC)
	return nil
}

// wantedTunnel keeps the published address as long as a network of this node
// has it: a node has one tunnel address, which must not flip between its
// networks. Else it is that of the pod's network, the first.
func wantedTunnel(published string, tunnels []dataplane.Tunnel) dataplane.Tunnel {
	address, err := netip.ParseAddr(published)
	if at := slices.IndexFunc(tunnels, func(t dataplane.Tunnel) bool { return t.Address == address }); err == nil && at >= 0 {
		return tunnels[at]
	}
	return tunnels[0]
}

// wait is a pause that ends with its context.
func (p *Plugin) wait(ctx context.Context, length time.Duration) error {
	if p.pause != nil {
		return p.pause(ctx, length)
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
