package ipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// foreigner is another program on the same data that works as IPAM contract
// 3.1 and 3.3 describe: one object per request, guarded by its revision.
type foreigner struct {
	store datastore.Store
	c     *cluster
	host  string
	cidr  netip.Prefix
}

func (f *foreigner) affinityKey() model.AffinityKey {
	return model.AffinityKey{Type: model.AffinityHost, Host: f.host, CIDR: f.cidr}
}

func (f *foreigner) blockKey() model.BlockKey { return model.BlockKey{CIDR: f.cidr} }

func fetch[T any](ctx context.Context, f *foreigner, key model.Key) (*T, datastore.Revision, error) {
	answers, err := f.store.Read(ctx, datastore.Get{Key: key})
	if err != nil {
		return nil, datastore.Absent, err
	}
	value, revision := datastore.One[T](answers[0])
	return value, revision, nil
}

func (f *foreigner) write(ctx context.Context, m datastore.Mutation) (datastore.Revision, error) {
	written, err := f.store.Write(ctx, datastore.Step{m})
	return written[m.Key], err
}

// lost reports whether a guard did not hold.
func lost(err error) bool {
	var conflict *datastore.ConflictError
	return errors.As(err, &conflict)
}

// claim is C1 to C3. It returns false if the block is another host's, or if
// somebody has changed the affinity since, which is an error to its caller.
func (f *foreigner) claim(ctx context.Context) (bool, error) {
	pending := &model.Affinity{State: model.StatePending}
	revision, err := f.write(ctx, datastore.Put(f.affinityKey(), pending, datastore.Absent))
	for lost(err) {
		var found *model.Affinity
		found, revision, err = fetch[model.Affinity](ctx, f, f.affinityKey())
		if err == nil && (found == nil || found.State != model.StateConfirmed) {
			revision, err = f.write(ctx, datastore.Put(f.affinityKey(), pending, revision))
		}
	}
	if err != nil {
		return false, err
	}
	fresh := model.NewBlock(f.cidr, f.affinityKey().Owner(), f.c.clock.Now(), nil)
	if _, err = f.write(ctx, datastore.Put(f.blockKey(), fresh, datastore.Absent)); lost(err) {
		block, _, err := fetch[model.Block](ctx, f, f.blockKey())
		if err != nil {
			return false, err
		}
		if block == nil || block.Affinity != f.affinityKey().Owner() {
			_, err := f.write(ctx, datastore.Remove(f.affinityKey(), revision))
			return false, ignoreLost(err)
		}
	} else if err != nil {
		return false, err
	}
	return f.confirm(ctx, revision)
}

func (f *foreigner) confirm(ctx context.Context, revision datastore.Revision) (bool, error) {
	_, err := f.write(ctx, datastore.Put(f.affinityKey(), confirmed(), revision))
	if !lost(err) {
		return err == nil, err
	}
	found, _, err := fetch[model.Affinity](ctx, f, f.affinityKey())
	return found != nil && found.State == model.StateConfirmed, err
}

func ignoreLost(err error) error {
	if lost(err) {
		return nil
	}
	return err
}

// count adds n to a handle, whatever stands in the way (datastore contract 5).
func (f *foreigner) count(ctx context.Context, id string, n int) error {
	key := model.HandleKey{ID: id}
	for {
		handle, revision, err := fetch[model.Handle](ctx, f, key)
		if err != nil {
			return err
		}
		next := &model.Handle{Blocks: map[netip.Prefix]int{}}
		if handle != nil {
			next.Blocks = maps.Clone(handle.Blocks)
		}
		if next.Blocks[f.cidr] += n; next.Blocks[f.cidr] <= 0 {
			delete(next.Blocks, f.cidr)
		}
		if _, err = f.write(ctx, handleEdit(id, next, revision).mutation()); !lost(err) {
			return err
		}
	}
}

// assign is an ADD that claims the block first if it has to.
func (f *foreigner) assign(ctx context.Context, id string) error {
	if won, err := f.claim(ctx); err != nil || !won {
		return err
	}
	for {
		block, revision, err := fetch[model.Block](ctx, f, f.blockKey())
		if err != nil || block == nil || block.Affinity != f.affinityKey().Owner() {
			return err
		}
		if err := f.count(ctx, id, 1); err != nil {
			return err
		}
		block = block.Clone()
		block.Allocate(1, model.Attribute{HandleID: id, Owner: map[string]string{"node": f.host, "by": "another"}}, nil)
		block.Stamp()
		if _, err = f.write(ctx, datastore.Put(f.blockKey(), block, revision)); !lost(err) {
			return err
		}
		if err := f.count(ctx, id, -1); err != nil {
			return err
		}
	}
}

// giveUp is R0 to R3, of an empty block. It ends when it loses a race.
func (f *foreigner) giveUp(ctx context.Context) error {
	affinity, revision, err := fetch[model.Affinity](ctx, f, f.affinityKey())
	if err != nil || affinity == nil {
		return err
	}
	block, blockRevision, err := fetch[model.Block](ctx, f, f.blockKey())
	if err != nil || block == nil || block.Affinity != f.affinityKey().Owner() || !block.Empty() {
		return err
	}
	leaving := &model.Affinity{State: model.StatePendingDeletion}
	if revision, err = f.write(ctx, datastore.Put(f.affinityKey(), leaving, revision)); err != nil {
		return ignoreLost(err)
	}
	if _, err = f.write(ctx, datastore.Remove(f.blockKey(), blockRevision)); err != nil {
		return ignoreLost(err)
	}
	_, err = f.write(ctx, datastore.Remove(f.affinityKey(), revision))
	return ignoreLost(err)
}

// foreign is an operation of another program as an actor.
func foreign(name, host string, do func(ctx context.Context, f *foreigner) error) actor {
	return actor{name: fmt.Sprintf("%s by another program on %s", name, host),
		foreign: func(ctx context.Context, c *cluster, store datastore.Store) error {
			return do(ctx, &foreigner{store: store, c: c, host: host, cidr: netip.MustParsePrefix("10.77.0.0/26")})
		}}
}

func foreignAdd(host string) actor {
	return foreign("ADD", host, func(ctx context.Context, f *foreigner) error { return f.assign(ctx, "k8s-pod-network.other") })
}

func foreignGiveUp(host string) actor {
	return foreign("release of a block", host, func(ctx context.Context, f *foreigner) error { return f.giveUp(ctx) })
}

// foreignInterleavings are of ours and another program's (IPAM contract 5.2,
// why others are safe).
func foreignInterleavings() []interleaving {
	p26 := func(c *cluster) { c.p26() }
	marked := func(c *cluster) {
		c.p26()
		c.assign("worker-b", "one", 1)
		c.mark()
	}
	empty := func(c *cluster) {
		c.p26()
		c.assign("worker-b", "one", 1)
		c.release("one")
	}
	return []interleaving{
		{name: "ADD and another program's on one fresh host", prepare: p26, actors: []actor{addOne("worker-b", "two"), foreignAdd("worker-b")}},
		{name: "ADD and another program's on two fresh hosts", prepare: p26, actors: []actor{addOne("worker-b", "two"), foreignAdd("worker-a")}},
		{name: "ADD and another program's, unknown members", prepare: marked, actors: []actor{addOne("worker-b", "two"), foreignAdd("worker-b")},
			verify: (*cluster).wantMarks},
		{name: "DEL and another program's ADD", prepare: marked, actors: []actor{delOne("one"), foreignAdd("worker-b")},
			verify: func(c *cluster) { c.wantGone("k8s-pod-network.one") }},
		{name: "ADD and another program's release of the block", loose: true, halfReleased: true, prepare: empty,
			actors: []actor{addOne("worker-b", "two"), foreignGiveUp("worker-b")}},
		{name: "two ADDs and another program's release of the block", large: true, halfReleased: true, prepare: empty,
			actors: []actor{addOne("worker-b", "two"), addOne("worker-a", "three"), foreignGiveUp("worker-b")}},
		{name: "removal of a host and another program's ADD", prepare: empty, halfReleased: true, actors: []actor{removeHost("worker-b"), foreignAdd("worker-a")}},
	}
}

// mark adds members that nobody knows to the block and to a handle.
func (c *cluster) mark() {
	c.Helper()
	for _, key := range []model.Key{model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/26")}, model.HandleKey{ID: "k8s-pod-network.one"}} {
		raw, _ := c.store.Raw(key.Path())
		c.plant(key, raw[:len(raw)-1]+`,"future":{"n":18446744073709551615}}`)
	}
}

func (c *cluster) wantMarks() {
	c.Helper()
	raw, _ := c.store.Raw(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/26")}.Path())
	wantContains(c.T, raw, `"future":{"n":18446744073709551615}`)
}
