package kubernetes

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// keepsake holds, of the objects that were read, what other writers put there
// and no value has a place for, so that an update can put it back.
type keepsake struct {
	mu      sync.Mutex
	objects map[model.Key]foreign
}

// foreign is what one version of an object holds beyond its value.
type foreign struct {
	revision datastore.Revision
	metadata model.Unknown
	spec     model.Unknown
}

func newKeepsake() *keepsake { return &keepsake{objects: map[model.Key]foreign{}} }

// keep remembers an object that was read or written.
func (k *keepsake) keep(key model.Key, d document) {
	f := foreign{revision: d.revision(), metadata: foreignMetadata(key, d)}
	// An affinity is written as a new value, never as a changed one.
	if affinity, ok := key.(model.AffinityKey); ok {
		f.spec = unknownMembers(affinity, d.spec)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(f.metadata)+len(f.spec) == 0 {
		delete(k.objects, key)
		return
	}
	k.objects[key] = f
}

// of returns what is to be put back into the object at this revision.
func (k *keepsake) of(key model.Key, at datastore.Revision) foreign {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.objects[key]; f.revision == at {
		return f
	}
	return foreign{}
}

// notForeign are the members of metadata that an update sets itself or that
// are the server's alone. Leaving managedFields out keeps them as they are.
var notForeign = []string{
	"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
	"selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
}

func foreignMetadata(key model.Key, d document) model.Unknown {
	members := model.Unknown{}
	if json.Unmarshal(d.metadata, &members) != nil {
		return nil
	}
	for name, value := range members {
		if slices.Contains(notForeign, name) || strings.Trim(string(value), "{}") == "" {
			delete(members, name)
		}
	}
	if affinity, ok := key.(model.AffinityKey); ok && sameLabels(d.meta.Labels, affinity.Labels()) {
		delete(members, "labels")
	}
	return members
}

func sameLabels(a, b map[string]string) bool {
	for name, value := range b {
		if a[name] != value {
			return false
		}
	}
	return len(a) == len(b)
}

// unknownMembers are those of a spec that an affinity's value never sets.
func unknownMembers(key model.AffinityKey, spec json.RawMessage) model.Unknown {
	members, known := model.Unknown{}, model.Unknown{}
	ours, err := model.EncodeSpec(model.GroupV3, key, &model.Affinity{})
	if err != nil || json.Unmarshal(spec, &members) != nil || json.Unmarshal(ours, &known) != nil {
		return nil
	}
	for name := range known {
		delete(members, name)
	}
	return members
}
