//go:build kubernetes && linux

package kubernetes

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

func blockKey(cidr string) model.BlockKey { return model.BlockKey{CIDR: netip.MustParsePrefix(cidr)} }

func affinityKey(host, cidr string) model.AffinityKey {
	return model.AffinityKey{Type: model.AffinityHost, Host: host, CIDR: netip.MustParsePrefix(cidr)}
}

// flag is the deleted flag of an affinity as the group spells it.
func (e *env) flag(deleted bool) any {
	if e.group == model.GroupV1 {
		return fmt.Sprint(deleted)
	}
	return deleted
}

// plant creates an object as another writer does.
func (e *env) plant(plural, kind string, metadata, spec map[string]any) map[string]any {
	e.Helper()
	return cluster.Admin().Do(e, "POST", e.path(plural), map[string]any{
		"apiVersion": string(e.group), "kind": kind, "metadata": metadata, "spec": spec,
	})
}

// object is what the server holds; nil if it is gone.
func (e *env) object(path string) map[string]any {
	e.Helper()
	if _, err := cluster.Admin().Try("GET", path, nil); err != nil {
		return nil
	}
	return cluster.Admin().Do(e, "GET", path, nil)
}

// at looks into an object.
func at(object map[string]any, path ...string) any {
	var value any = object
	for _, name := range path {
		members, _ := value.(map[string]any)
		value = members[name]
	}
	return value
}

func (e *env) get(store datastore.Store, key model.Key) (any, datastore.Revision) {
	e.Helper()
	answers, err := store.Read(e.within(time.Minute), datastore.Get{Key: key})
	if err != nil {
		e.Fatal(err)
	}
	if len(answers[0].Entries) == 0 {
		return nil, datastore.Absent
	}
	return answers[0].Entries[0].Value, answers[0].Entries[0].Revision
}

func (e *env) write(store datastore.Store, steps ...datastore.Step) datastore.Written {
	e.Helper()
	written, err := store.Write(e.within(time.Minute), steps...)
	if err != nil {
		e.Fatal(err)
	}
	return written
}

// TestAffinityObject: name, labels and spec are what other writers look for,
// also after an update.
func TestAffinityObject(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		store, key := e.open(), affinityKey("worker-b", "10.77.3.64/26")
		written := e.write(store, datastore.Step{datastore.Put(key, &model.Affinity{State: model.StatePending}, datastore.Absent)})
		for _, state := range []model.AffinityState{model.StatePending, model.StateConfirmed} {
			object := e.object(e.path("blockaffinities", "worker-b-10-77-3-64-26"))
			if labels, _ := at(object, "metadata", "labels").(map[string]any); len(labels) != 3 ||
				labels[model.LabelHostHash] != "CX2QLHUEHULM6VCI5WXZCW66VEG3BCWWOICA6SF6TEZ3FLJDBZDQ" ||
				labels[model.LabelAffinityType] != "host" || labels[model.LabelIPVersion] != "4" {
				t.Errorf("labels %v", labels)
			}
			want := map[string]any{"state": string(state), "node": "worker-b", "type": "host", "cidr": "10.77.3.64/26", "deleted": e.flag(false)}
			if spec, _ := at(object, "spec").(map[string]any); !maps.Equal(spec, want) {
				t.Errorf("spec %v, want %v", spec, want)
			}
			e.write(store, datastore.Step{datastore.Put(key, &model.Affinity{State: model.StateConfirmed}, written[key])})
			if state == model.StateConfirmed {
				return
			}
			_, written[key] = e.get(store, key)
		}
	})
}

// TestLongHostNames: the object's name is cut, the labels are not affected.
func TestLongHostNames(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		store, host := e.open(), strings.Repeat("n", 240)
		key := affinityKey(host, "10.77.3.64/26")
		e.write(store, datastore.Step{datastore.Put(key, &model.Affinity{State: model.StateConfirmed}, datastore.Absent)})
		answers, err := store.Read(e.within(time.Minute), datastore.Get{Key: key},
			datastore.ListAffinities{Type: model.AffinityHost, Host: host, Family: model.IPv4})
		if err != nil || len(answers[0].Entries) != 1 || len(answers[1].Entries) != 1 {
			t.Errorf("%v, %v", answers, err)
		}
	})
}

// TestForeignMetadata: what others put on an object stays through an update of
// a new value, and nobody's ownership of members is forgotten.
func TestForeignMetadata(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		store, key := e.open(), affinityKey("worker-b", "10.77.3.64/26")
		e.plant("blockaffinities", "BlockAffinity", map[string]any{
			"name": key.ObjectName(), "finalizers": []string{"example.org/keep"},
			"labels":          map[string]string{"example.org/label": "kept"},
			"annotations":     map[string]string{"example.org/annotation": "kept", model.MetadataAnnotation: `{"creationTimestamp":null}`},
			"ownerReferences": []map[string]any{{"apiVersion": "v1", "kind": "Node", "name": "worker-b", "uid": "6f1c2a40-93b7-4d0e-8a51-0c7be2f9d318"}},
		}, map[string]any{"state": "pending", "node": "worker-b", "cidr": "10.77.3.64/26", "deleted": e.flag(false)})
		_, revision := e.get(store, key)
		e.write(store, datastore.Step{datastore.Put(key, &model.Affinity{State: model.StateConfirmed}, revision)})
		object := e.object(e.path("blockaffinities", key.ObjectName()))
		if at(object, "spec", "state") != "confirmed" || at(object, "metadata", "labels", "example.org/label") != "kept" ||
			at(object, "metadata", "labels", model.LabelAffinityType) != "host" ||
			at(object, "metadata", "annotations", "example.org/annotation") != "kept" ||
			at(object, "metadata", "annotations", model.MetadataAnnotation) == nil ||
			len(at(object, "metadata", "finalizers").([]any)) != 1 || len(at(object, "metadata", "ownerReferences").([]any)) != 1 {
			t.Errorf("the object is now %v", object)
		}
		managers := map[any]bool{}
		fields, _ := at(object, "metadata", "managedFields").([]any)
		for _, field := range fields {
			managers[at(field.(map[string]any), "manager")] = true
		}
		if len(managers) != 2 {
			t.Errorf("the members belong to %v, want the other writer and us", managers)
		}
		cluster.Admin().Do(t, "PATCH", e.path("blockaffinities", key.ObjectName()), map[string]any{"metadata": map[string]any{"finalizers": nil}})
	})
}

// flagged plants a block, an affinity and a handle whose deletion another
// writer has begun.
func (e *env) flagged() []model.Key {
	e.Helper()
	e.plant("ipamblocks", "IPAMBlock", map[string]any{"name": "10-77-0-0-30"}, map[string]any{
		"cidr": "10.77.0.0/30", "affinity": "host:worker-b", "allocations": []any{nil, nil, nil, nil}, "unallocated": []int{0, 1, 2, 3},
		"attributes": []any{}, "strictAffinity": false, "deleted": true,
	})
	affinity := affinityKey("worker-b", "10.77.0.0/30")
	e.plant("blockaffinities", "BlockAffinity", map[string]any{"name": affinity.ObjectName(), "labels": affinity.Labels()},
		map[string]any{"state": "pendingDeletion", "node": "worker-b", "type": "host", "cidr": "10.77.0.0/30", "deleted": e.flag(true)})
	e.plant("ipamhandles", "IPAMHandle", map[string]any{"name": "net.a"}, map[string]any{"handleID": "net.a", "block": map[string]any{}, "deleted": true})
	return []model.Key{blockKey("10.77.0.0/30"), affinity, model.HandleKey{ID: "net.a"}}
}

// TestDeletionOfOthers is datastore contract 3.3.
func TestDeletionOfOthers(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		store := e.open()
		keys := e.flagged()
		values := []any{model.NewBlock(netip.MustParsePrefix("10.77.0.0/30"), "host:worker-b", time.Now(), nil), &model.Affinity{State: model.StatePending}, &model.Handle{}}
		answers, err := store.Read(e.within(time.Minute), datastore.ListBlocks{Family: model.IPv4}, datastore.ListHandles{},
			datastore.ListAffinities{Type: model.AffinityHost, Host: "worker-b", Family: model.IPv4})
		if err != nil {
			t.Fatal(err)
		}
		for _, answer := range answers {
			if len(answer.Entries) != 0 {
				t.Errorf("a list holds %v", answer.Entries)
			}
		}
		for i, key := range keys {
			create := datastore.Step{datastore.Put(key, values[i], datastore.Absent)}
			if _, err := store.Write(e.within(time.Minute), create); !errors.Is(err, datastore.ErrExists) {
				t.Errorf("creating the %s over its remains: %v", key, err)
			}
			if value, _ := e.get(store, key); value != nil {
				t.Errorf("the %s exists: %v", key, value)
			}
			e.write(store, create)
		}
	})
}

// TestUnlabelledAffinities is the upgrade step of datastore contract 4.3.
func TestUnlabelledAffinities(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		store := e.open()
		for host, cidr := range map[string]string{"worker-b": "10.77.0.0/26", "worker-c": "10.77.0.64/26"} {
			e.plant("blockaffinities", "BlockAffinity", map[string]any{"name": affinityKey(host, cidr).ObjectName()},
				map[string]any{"state": "confirmed", "node": host, "cidr": cidr, "deleted": e.flag(false)})
		}
		mine := datastore.ListAffinities{Type: model.AffinityHost, Host: "worker-b", Family: model.IPv4}
		count := func() int {
			answers, err := store.Read(e.within(time.Minute), mine)
			if err != nil {
				t.Fatal(err)
			}
			return len(answers[0].Entries)
		}
		if count() != 0 {
			t.Error("an affinity without labels is found by them")
		}
		for _, want := range []int{1, 0} {
			if labelled, err := store.LabelAffinities(e.within(time.Minute), "worker-b"); labelled != want || err != nil {
				t.Errorf("%d labelled, %v; want %d", labelled, err, want)
			}
		}
		if count() != 1 {
			t.Error("the affinity is still not found")
		}
		if labels := at(e.object(e.path("blockaffinities", "worker-c-10-77-0-64-26")), "metadata", "labels"); labels != nil {
			t.Errorf("another host's affinity has the labels %v", labels)
		}
	})
}

// TestUndecodable: a list skips what it cannot read; a Get of it is an error
// that names it.
func TestUndecodable(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		store := e.open()
		e.plant("ipamblocks", "IPAMBlock", map[string]any{"name": "10-77-0-0-26"}, map[string]any{
			"cidr": "10.77.0.0/26", "allocations": []any{0}, "unallocated": []int{}, "attributes": []any{}, "strictAffinity": false,
		})
		e.plant("ippools", "IPPool", map[string]any{"name": "pods"}, map[string]any{"cidr": "10.77.0.0/16"})
		_, err := store.Read(e.within(time.Minute), datastore.Get{Key: blockKey("10.77.0.0/26")})
		if !errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), "block 10.77.0.0/26") {
			t.Errorf("failed with %v", err)
		}
		answers, err := store.Read(e.within(time.Minute), datastore.ListBlocks{Family: model.IPv4}, datastore.ListResources{Kind: model.KindIPPool})
		if err != nil || len(answers[0].Entries) != 0 || len(answers[1].Entries) != 1 {
			t.Errorf("%v, %v", answers, err)
		}
	})
}

// TestPages: a list of more than one page is complete.
func TestPages(t *testing.T) {
	const count = 1001
	e := newEnv(t, model.GroupV1)
	store := e.open()
	var step datastore.Step
	for i := range count {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(i >> 6), byte(i << 2)}), 30)
		step = append(step, datastore.Put(model.BlockKey{CIDR: cidr}, model.NewBlock(cidr, "host:worker-b", time.Now(), nil), datastore.Absent))
	}
	e.write(store, step)
	e.proxy.Forget()
	answers, err := store.Read(e.within(time.Minute), datastore.ListBlocks{Family: model.IPv4}, datastore.ListBlocks{Family: model.IPv4, KeysOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range answers {
		if len(answer.Entries) != count || !slices.IsSortedFunc(answer.Entries, func(a, b datastore.Entry) int { return strings.Compare(a.Key.Path(), b.Key.Path()) }) {
			t.Errorf("%d entries, want %d in order", len(answer.Entries), count)
		}
	}
	if requests := e.proxy.Exchanges(); len(requests) != 6 {
		t.Errorf("%d requests, want 3 pages each: %v", len(requests), requests)
	}
}

// TestPoolConditions: what controllers say of a pool counts, and a pool that is
// being deleted is not used.
func TestPoolConditions(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		store := e.open()
		key := model.ResourceKey{Kind: model.KindIPPool, Name: "pods"}
		pool := func() *model.IPPool {
			value, _ := e.get(store, key)
			return value.(*model.IPPool)
		}
		e.plant("ippools", "IPPool", map[string]any{"name": "pods", "finalizers": []string{"projectcalico.org/ippool-finalizer"}},
			map[string]any{"cidr": "10.77.0.0/16"})
		if found := pool(); !found.Enabled() || found.BlockSize != 26 || found.NodeSelector != "all()" || len(found.Metadata.Finalizers) != 1 {
			t.Errorf("a new pool: %+v", found)
		}
		condition := map[string]any{"type": "Allocatable", "status": "False", "reason": "CIDROverlap", "message": "", "lastTransitionTime": "2026-03-04T05:06:07Z"}
		cluster.Admin().Do(t, "PATCH", e.path("ippools", "pods", "status"), map[string]any{"status": map[string]any{"conditions": []any{condition}}})
		if pool().Enabled() {
			t.Error("a pool from which nothing may be taken counts as enabled")
		}
		cluster.Admin().Do(t, "PATCH", e.path("ippools", "pods", "status"), map[string]any{"status": nil})
		cluster.Admin().Do(t, "DELETE", e.path("ippools", "pods"), nil)
		if found := pool(); found.Enabled() || !found.Metadata.Deleting {
			t.Errorf("a pool that is being deleted: %+v", found)
		}
		cluster.Admin().Do(t, "PATCH", e.path("ippools", "pods"), map[string]any{"metadata": map[string]any{"finalizers": nil}})
	})
}
