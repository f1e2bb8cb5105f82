package model

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// APIGroup is the group and version under which a cluster keeps Calico's data
// as custom resources (datastore contract 1).
type APIGroup string

// The two groups.
const (
	GroupV1 APIGroup = "crd.projectcalico.org/v1"
	GroupV3 APIGroup = "projectcalico.org/v3"
)

// customNames gives, per type, the members of the custom resource's spec that
// are called otherwise in etcd.
var (
	blockNames  = map[string]string{"affinity_claim_time": "affinityClaimTime"}
	configNames = map[string]string{"strict_affinity": "strictAffinity", "auto_allocate_blocks": "autoAllocateBlocks"}
)

// EncodeSpec writes the spec of the custom resource of an IPAM object: a
// *Block, *Affinity, *Handle or *IPAMConfig.
func EncodeSpec(group APIGroup, key Key, value any) (json.RawMessage, error) {
	body, err := Encode(key, value)
	if err != nil {
		return nil, err
	}
	members := Unknown{}
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, fmt.Errorf("encoding the %s: %w", key, err)
	}
	if err := toCustom(group, key, members); err != nil {
		return nil, fmt.Errorf("encoding the %s: %w", key, err)
	}
	return json.Marshal(members)
}

func toCustom(group APIGroup, key Key, members Unknown) error {
	switch k := key.(type) {
	case BlockKey:
		rename(members, blockNames, false)
		if string(members["affinity"]) == "null" {
			delete(members, "affinity")
		}
		members["strictAffinity"] = json.RawMessage("false") // obsolete, required by the schema
	case AffinityKey:
		return affinityToCustom(group, k, members)
	case HandleKey:
		members["handleID"] = quoted(k.ID)
	case IPAMConfigKey:
		rename(members, configNames, false)
		for _, required := range configNames {
			if _, ok := members[required]; !ok {
				members[required] = json.RawMessage("false")
			}
		}
	default:
		return fmt.Errorf("a %T has no spec of its own", key)
	}
	return nil
}

// affinityToCustom: the flag is a string in the older group.
func affinityToCustom(group APIGroup, key AffinityKey, members Unknown) error {
	if group == GroupV1 {
		members["deleted"] = quoted(string(members["deleted"]))
	}
	members["node"] = quoted(key.Host)
	members["type"] = quoted(key.Type)
	members["cidr"] = quoted(key.CIDR.String())
	return nil
}

// quoted encodes a string, which never fails.
func quoted(text string) json.RawMessage {
	body, _ := json.Marshal(text)
	return body
}

func rename(members Unknown, names map[string]string, back bool) {
	for from, to := range names {
		if back {
			from, to = to, from
		}
		if value, ok := members[from]; ok {
			delete(members, from)
			members[to] = value
		}
	}
}

// DecodeSpec reads the spec of the custom resource of an IPAM object. like is
// any key of its type; the key returned is what the object says of itself.
func DecodeSpec(like Key, spec json.RawMessage) (Key, any, error) {
	members := Unknown{}
	if err := json.Unmarshal(spec, &members); err != nil {
		return nil, nil, fmt.Errorf("spec: %w", err)
	}
	key, err := fromCustom(like, members)
	if err != nil {
		return nil, nil, fmt.Errorf("spec: %w", err)
	}
	body, err := json.Marshal(members)
	if err != nil {
		return nil, nil, fmt.Errorf("spec: %w", err)
	}
	value, err := Decode(key, body)
	return key, value, err
}

func fromCustom(like Key, members Unknown) (Key, error) {
	switch like.(type) {
	case BlockKey:
		rename(members, blockNames, true)
		delete(members, "strictAffinity")
		cidr, err := cidrOf(text(members, "cidr"))
		return BlockKey{CIDR: cidr}, err
	case AffinityKey:
		return affinityFromCustom(members)
	case HandleKey:
		id := text(members, "handleID")
		delete(members, "handleID")
		if id == "" {
			return nil, fmt.Errorf("no handleID")
		}
		return HandleKey{ID: id}, nil
	case IPAMConfigKey:
		rename(members, configNames, true)
		return IPAMConfigKey{}, nil
	}
	return nil, fmt.Errorf("a %T has no spec of its own", like)
}

// affinityFromCustom: without a type it is a host's; a flag that is empty or
// neither of the two values is false (datastore contract 8).
func affinityFromCustom(members Unknown) (Key, error) {
	key := AffinityKey{Type: text(members, "type"), Host: text(members, "node")}
	if key.Type == "" {
		key.Type = AffinityHost
	}
	var err error
	if key.CIDR, err = cidrOf(text(members, "cidr")); err != nil {
		return nil, err
	}
	deleted, _ := strconv.ParseBool(strings.Trim(string(members["deleted"]), `"`))
	members["deleted"] = json.RawMessage(strconv.FormatBool(deleted))
	for _, name := range []string{"type", "node", "cidr"} {
		delete(members, name)
	}
	if key.Host == "" {
		return nil, fmt.Errorf("no node")
	}
	return key, nil
}

func cidrOf(text string) (netip.Prefix, error) {
	cidr, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("cidr %q: %w", text, err)
	}
	return cidr.Masked(), nil
}

// text returns a member that is a string, else "".
func text(members Unknown, name string) string {
	var value string
	_ = json.Unmarshal(members[name], &value) // whatever is no string counts as absent
	return value
}
