package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strings"
)

// AffinityState is how far a claim on a block has got.
type AffinityState string

// The states. The empty state is an old writer's "confirmed".
const (
	StateLegacy          AffinityState = ""
	StatePending         AffinityState = "pending"
	StateConfirmed       AffinityState = "confirmed"
	StatePendingDeletion AffinityState = "pendingDeletion"
)

// Confirmed reports whether the state, with a matching block, means ownership.
func (s AffinityState) Confirmed() bool { return s == StateConfirmed || s == StateLegacy }

// Affinity is a host's claim on a block (datastore contract 4.3). Host and
// block are in its key.
type Affinity struct {
	State   AffinityState
	Deleted bool

	unknown Unknown
}

type affinityDocument struct {
	State   AffinityState `json:"state"`
	Deleted bool          `json:"deleted"`
}

// MarshalJSON writes the affinity's value in etcd.
func (a *Affinity) MarshalJSON() ([]byte, error) {
	return encodeKeeping(affinityDocument{State: a.State, Deleted: a.Deleted}, a.unknown)
}

// UnmarshalJSON reads the affinity's value in etcd.
func (a *Affinity) UnmarshalJSON(data []byte) error {
	var doc affinityDocument
	unknown, err := decodeKeeping(data, &doc)
	if err != nil {
		return err
	}
	*a = Affinity{State: doc.State, Deleted: doc.Deleted, unknown: unknown}
	return nil
}

// Handle groups the addresses of one user, so that they can be found and
// released together (datastore contract 4.4). Its id is in its key.
type Handle struct {
	// Blocks counts addresses per block; never knowingly too low.
	Blocks  map[netip.Prefix]int
	Deleted bool

	unknown Unknown
}

type handleDocument struct {
	Blocks  map[string]int `json:"block"`
	Deleted bool           `json:"deleted"`
}

// Clone returns a copy that shares nothing changeable with h.
func (h *Handle) Clone() *Handle {
	out := *h
	out.Blocks = maps.Clone(h.Blocks)
	return &out
}

// MarshalJSON writes the handle's value in etcd.
func (h *Handle) MarshalJSON() ([]byte, error) {
	doc := handleDocument{Blocks: make(map[string]int, len(h.Blocks)), Deleted: h.Deleted}
	for cidr, count := range h.Blocks {
		doc.Blocks[cidr.String()] = count
	}
	return encodeKeeping(doc, h.unknown)
}

// UnmarshalJSON reads the handle's value in etcd.
func (h *Handle) UnmarshalJSON(data []byte) error {
	var doc handleDocument
	unknown, err := decodeKeeping(data, &doc)
	if err != nil {
		return err
	}
	*h = Handle{Blocks: make(map[netip.Prefix]int, len(doc.Blocks)), Deleted: doc.Deleted, unknown: unknown}
	for text, count := range doc.Blocks {
		cidr, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("block %q of a handle: %w", text, err)
		}
		h.Blocks[cidr.Masked()] += count
	}
	return nil
}

// HandleIDBefore cuts the junk that old writers left behind a carriage return.
func HandleIDBefore(id string) string {
	before, _, _ := strings.Cut(id, "\r")
	return before
}

// IPAMConfig is the cluster's address policy (datastore contract 4.5).
type IPAMConfig struct {
	StrictAffinity     bool
	AutoAllocateBlocks bool
	// MaxBlocksPerHost 0 means the default limit.
	MaxBlocksPerHost int
	// CooldownSeconds keeps a released address from being handed out again.
	CooldownSeconds int
	// VMPersistence is "Enabled" or "Disabled"; empty means enabled.
	VMPersistence string

	unknown Unknown
}

// DefaultIPAMConfig is what holds when the datastore has no configuration.
func DefaultIPAMConfig() *IPAMConfig { return &IPAMConfig{AutoAllocateBlocks: true} }

type ipamConfigDocument struct {
	Strict        bool   `json:"strict_affinity,omitempty"`
	AutoAllocate  bool   `json:"auto_allocate_blocks,omitempty"`
	MaxBlocks     int    `json:"maxBlocksPerHost,omitempty"`
	VMPersistence string `json:"kubeVirtVMAddressPersistence,omitempty"`
	Cooldown      int    `json:"ipCooldownSeconds,omitempty"`
}

// MarshalJSON writes the configuration's value in etcd.
func (c *IPAMConfig) MarshalJSON() ([]byte, error) {
	return encodeKeeping(ipamConfigDocument{
		Strict: c.StrictAffinity, AutoAllocate: c.AutoAllocateBlocks, MaxBlocks: c.MaxBlocksPerHost,
		VMPersistence: c.VMPersistence, Cooldown: c.CooldownSeconds,
	}, c.unknown)
}

// UnmarshalJSON reads the configuration's value in etcd, in which a missing
// auto_allocate_blocks means false.
func (c *IPAMConfig) UnmarshalJSON(data []byte) error {
	var doc ipamConfigDocument
	unknown, err := decodeKeeping(data, &doc)
	if err != nil {
		return err
	}
	*c = IPAMConfig{
		StrictAffinity: doc.Strict, AutoAllocateBlocks: doc.AutoAllocate, MaxBlocksPerHost: doc.MaxBlocks,
		VMPersistence: doc.VMPersistence, CooldownSeconds: doc.Cooldown, unknown: unknown,
	}
	return nil
}

// KindIPAMConfiguration is the IPAM configuration that operators edit where
// etcd is the datastore; the allocator does not read it. Nothing writes it
// here, and it is no part of Kinds.
const KindIPAMConfiguration Kind = "IPAMConfiguration"

// IPAMConfigurationName is the name of the one IPAMConfiguration.
const IPAMConfigurationName = "default"

// IPAMConfiguration tells whether virtual machines keep their addresses
// (datastore contract 4.5).
type IPAMConfiguration struct{ VMPersistence string }

// UnmarshalJSON reads the object's wire form.
func (c *IPAMConfiguration) UnmarshalJSON(data []byte) error {
	var document struct {
		Spec struct {
			VMPersistence string `json:"kubeVirtVMAddressPersistence"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return err
	}
	*c = IPAMConfiguration{VMPersistence: document.Spec.VMPersistence}
	return nil
}

// Encode writes a value as it stands in etcd and in the embedded file.
func Encode(key Key, value any) ([]byte, error) {
	// Not json.Marshal: that would check and copy the document once more.
	marshaler, ok := value.(json.Marshaler)
	if !ok {
		return nil, fmt.Errorf("encoding the %s: a %T is no object of the datastore", key, value)
	}
	body, err := marshaler.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding the %s: %w", key, err)
	}
	return body, nil
}

// Decode reads the value of a key as it stands in etcd and in the embedded
// file. The result is a pointer to the type that belongs to the key: *Block,
// *Affinity, *Handle, *IPAMConfig, *IPPool, ...
func Decode(key Key, data []byte) (any, error) {
	value := newValue(key)
	if value == nil {
		return nil, fmt.Errorf("decoding the %s: no such kind of object", key)
	}
	// An affinity with an empty value is an old writer's confirmed one.
	if _, affinity := value.(*Affinity); affinity && len(bytes.TrimSpace(data)) == 0 {
		return value, nil
	}
	if err := value.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("decoding the %s: %w", key, err)
	}
	if err := belongs(key, value); err != nil {
		return nil, fmt.Errorf("decoding the %s: %w", key, err)
	}
	return value, nil
}

// belongs refuses a document that says it is another object: what is decided
// on it would be written elsewhere. A resource without a name gets its key's.
func belongs(key Key, value any) error {
	if block, ok := value.(*Block); ok && block.CIDR != key.(BlockKey).CIDR {
		return fmt.Errorf("it is one of block %s", block.CIDR)
	}
	metadata := metadataOf(value)
	if metadata == nil {
		return nil
	}
	resource := key.(ResourceKey)
	if metadata.Name == "" && metadata.Namespace == "" {
		metadata.Name, metadata.Namespace = resource.Name, resource.Namespace
	}
	if metadata.Name != resource.Name || metadata.Namespace != resource.Namespace {
		return fmt.Errorf("it is one of %s", ResourceKey{resource.Kind, metadata.Namespace, metadata.Name})
	}
	return nil
}

func newValue(key Key) json.Unmarshaler {
	switch k := key.(type) {
	case BlockKey:
		return &Block{}
	case AffinityKey:
		return &Affinity{}
	case HandleKey:
		return &Handle{}
	case IPAMConfigKey:
		return &IPAMConfig{}
	case ResourceKey:
		return newResource(k.Kind)
	}
	return nil
}
