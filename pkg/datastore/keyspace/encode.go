package keyspace

import (
	"crypto/rand"
	"fmt"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Identify gives an object that is about to be created what the reference's
// client gives it (datastore contract 2): a random v4 UID and the time.
func Identify(metadata *model.Metadata) {
	metadata.UID = newUID()
	metadata.Created = time.Now().UTC()
}

func newUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// encode writes a mutation's value as it is stored. The caller's value is not
// changed: entries may be shared.
func encode(m datastore.Mutation, identify func(*model.Metadata)) ([]byte, error) {
	if !fits(m.Key, m.Value) {
		return nil, fmt.Errorf("%s: a %T is not its value", m.Key, m.Value)
	}
	if m.Op != datastore.Create {
		return model.Encode(m.Key, m.Value)
	}
	created, err := identified(m.Key, m.Value, identify)
	if err != nil {
		return nil, err
	}
	return model.Encode(m.Key, created)
}

func fits(key model.Key, value any) bool {
	switch k := key.(type) {
	case model.BlockKey:
		block, ok := value.(*model.Block)
		return ok && block != nil && block.CIDR == k.CIDR
	case model.AffinityKey:
		affinity, ok := value.(*model.Affinity)
		return ok && affinity != nil
	case model.HandleKey:
		handle, ok := value.(*model.Handle)
		return ok && handle != nil
	case model.IPAMConfigKey:
		config, ok := value.(*model.IPAMConfig)
		return ok && config != nil
	case model.ResourceKey:
		return resourceOf(value).kind == k.Kind
	}
	return false
}

// identified returns a copy of a v3 resource with an identity, and any other
// value as it is.
func identified(key model.Key, value any, identify func(*model.Metadata)) (any, error) {
	resourceKey, ok := key.(model.ResourceKey)
	if !ok {
		return value, nil
	}
	created := resourceOf(value)
	if created.metadata.Name != resourceKey.Name || created.metadata.Namespace != resourceKey.Namespace {
		return nil, fmt.Errorf("%s: the object to create is named %q in namespace %q",
			key, created.metadata.Name, created.metadata.Namespace)
	}
	identify(created.metadata)
	return created.object, nil
}

// resource is a copy of a v3 resource and the metadata in that copy.
type resource struct {
	kind     model.Kind
	object   any
	metadata *model.Metadata
}

// resourceOf is zero for whatever is no v3 resource.
func resourceOf(value any) resource {
	switch v := value.(type) {
	case *model.IPPool:
		return copied(model.KindIPPool, v, func(o *model.IPPool) *model.Metadata { return &o.Metadata })
	case *model.IPReservation:
		return copied(model.KindIPReservation, v, func(o *model.IPReservation) *model.Metadata { return &o.Metadata })
	case *model.Node:
		return copied(model.KindNode, v, func(o *model.Node) *model.Metadata { return &o.Metadata })
	case *model.ClusterInformation:
		return copied(model.KindClusterInformation, v, func(o *model.ClusterInformation) *model.Metadata { return &o.Metadata })
	case *model.Profile:
		return copied(model.KindProfile, v, func(o *model.Profile) *model.Metadata { return &o.Metadata })
	case *model.WorkloadEndpoint:
		return copied(model.KindWorkloadEndpoint, v, func(o *model.WorkloadEndpoint) *model.Metadata { return &o.Metadata })
	}
	return resource{}
}

func copied[T any](kind model.Kind, object *T, metadata func(*T) *model.Metadata) resource {
	if object == nil {
		return resource{}
	}
	out := *object
	return resource{kind: kind, object: &out, metadata: metadata(&out)}
}
