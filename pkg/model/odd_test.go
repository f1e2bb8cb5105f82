package model_test

import (
	"fmt"
	"strings"
	"testing"

	"calico-cni/pkg/model"
)

// fourBlock is a document of a block of four addresses, with these members in
// addition or instead.
func fourBlock(replace map[string]string) string {
	document := map[string]string{
		"cidr":        `"10.77.3.64/30"`,
		"affinity":    `"host:worker-b"`,
		"allocations": `[0,null,null,null]`,
		"unallocated": `[1,2,3]`,
		"attributes":  `[{"handle_id":"net.3f9c","secondary":{"node":"worker-b"}}]`,
	}
	for name, value := range replace {
		document[name] = value
	}
	var parts []string
	for name, value := range document {
		if value != "" {
			parts = append(parts, fmt.Sprintf("%q:%s", name, value))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

var fourKey = model.BlockKey{CIDR: prefix("10.77.3.64/30")}

// TestOddBlocks are the rows of datastore contract 8 about blocks.
func TestOddBlocks(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		members map[string]string
		holds   func(*model.Block) bool
	}{
		"no claim time, sequence numbers or entries": {nil, func(b *model.Block) bool {
			return b.ClaimTime.IsZero() && b.SequenceNumber == 0 && b.SequenceForAllocation[0] == 0
		}},
		"obsolete members": {map[string]string{"strictAffinity": "true", "hostAffinity": `"worker-c"`}, func(b *model.Block) bool {
			return b.Affinity == "host:worker-b"
		}},
		"attribute without handle": {map[string]string{"attributes": `[{"secondary":{"pod":"web-0"}}]`}, func(b *model.Block) bool {
			return b.Allocations[0] == 0 && b.Attributes[0].HandleID == "" && b.Attributes[0].ReleasedAt.IsZero()
		}},
		"attribute without owner": {map[string]string{"attributes": `[{"handle_id":"net.3f9c"}]`}, func(b *model.Block) bool {
			return b.Attributes[0].Owner["node"] == ""
		}},
		"null attribute members": {map[string]string{"attributes": `[{"handle_id":null,"secondary":null}]`}, func(b *model.Block) bool {
			return b.Attributes[0].HandleID == "" && b.Attributes[0].Owner == nil
		}},
		"no owner": {map[string]string{"affinity": "null"}, func(b *model.Block) bool { return b.Affinity == "" }},
		"null lists": {map[string]string{"allocations": "[null,null,null,null]", "unallocated": "null", "attributes": "null"}, func(b *model.Block) bool {
			return len(b.Unallocated) == 0 && len(b.Attributes) == 0
		}},
		"sequence numbers no float can hold": {map[string]string{
			"sequenceNumber": "18446744073709551615", "sequenceNumberForAllocation": `{"0":9007199254740993}`,
		}, func(b *model.Block) bool {
			return b.SequenceNumber == 1<<64-1 && b.SequenceForAllocation[0] == 1<<53+1
		}},
		"cooling address": {map[string]string{"attributes": `[{"releasedAt":"2026-03-04T05:06:07Z"}]`}, func(b *model.Block) bool {
			return b.Attributes[0].ReleasedAt.Unix() == 1772600767
		}},
		"entries of free ordinals": {map[string]string{"sequenceNumberForAllocation": `{"0":1,"3":7,"x":9}`}, func(b *model.Block) bool {
			return b.SequenceForAllocation[0] == 1
		}},
	} {
		value := mustDecode(t, fourKey, fourBlock(row.members))
		if !row.holds(value.(*model.Block)) {
			t.Errorf("%s: %+v", name, value)
		}
		again := mustDecode(t, fourKey, mustEncode(t, fourKey, value))
		if !row.holds(again.(*model.Block)) {
			t.Errorf("%s, written and read again: %+v", name, again)
		}
	}
}

func TestBlocksThatContradictThemselves(t *testing.T) {
	t.Parallel()
	for name, members := range map[string]map[string]string{
		"no cidr":                    {"cidr": ""},
		"not a cidr":                 {"cidr": `"10.77.3.64"`},
		"range of a whole network":   {"cidr": `"10.0.0.0/8"`},
		"too few allocations":        {"allocations": "[0]"},
		"no allocations":             {"allocations": ""},
		"too many allocations":       {"allocations": "[0,null,null,null,null]"},
		"attribute that is not held": {"allocations": "[1,null,null,null]"},
		"attribute below the first":  {"allocations": "[-2,null,null,null]"},
		"free and allocated":         {"unallocated": "[0,1,2,3]"},
		"free twice":                 {"unallocated": "[1,1]"},
		"free beyond the end":        {"unallocated": "[4]"},
		"free below the start":       {"unallocated": "[-1]"},
		"sequence number too large":  {"sequenceNumber": "18446744073709551616"},
		"sequence number a float":    {"sequenceNumber": "1.7e18"},
	} {
		if value, err := model.Decode(fourKey, []byte(fourBlock(members))); err == nil {
			t.Errorf("%s: read as %+v", name, value)
		}
	}
}

// TestOddObjects are the other rows of datastore contract 8.
func TestOddObjects(t *testing.T) {
	t.Parallel()
	affinity := model.AffinityKey{Type: "host", Host: "worker-b", CIDR: prefix("10.77.3.64/26")}
	for _, document := range []string{``, ` `, `{}`, `{"state":""}`, `{"state":"confirmed"}`, `null`} {
		if value := mustDecode(t, affinity, document).(*model.Affinity); !value.State.Confirmed() || value.Deleted {
			t.Errorf("affinity %q: %+v", document, value)
		}
	}
	pool := model.ResourceKey{Kind: model.KindIPPool, Name: "old"}
	for cidr, size := range map[string]int{"10.77.0.0/16": 26, "fd00:77::/64": 122} {
		value := mustDecode(t, pool, `{"metadata":{"name":"old"},"spec":{"cidr":"`+cidr+`"}}`).(*model.IPPool)
		if value.BlockSize != size || !value.Allows(model.UseWorkload) || !value.Allows(model.UseTunnel) || value.NodeSelector != "all()" ||
			value.IPIPMode != "Never" || value.VXLANMode != "Never" || value.AssignmentMode != "Automatic" || !value.Enabled() {
			t.Errorf("old pool %s: %+v", cidr, value)
		}
	}
	for name, document := range map[string]string{
		"disabled":        `{"spec":{"cidr":"10.77.0.0/16","disabled":true}}`,
		"being deleted":   `{"metadata":{"deletionTimestamp":"2026-03-04T05:06:07Z"},"spec":{"cidr":"10.77.0.0/16"}}`,
		"not allocatable": `{"spec":{"cidr":"10.77.0.0/16"},"status":{"conditions":[{"type":"Allocatable","status":"False"}]}}`,
	} {
		if mustDecode(t, pool, document).(*model.IPPool).Enabled() {
			t.Errorf("a pool that is %s counts as enabled", name)
		}
	}
	config := mustDecode(t, model.IPAMConfigKey{}, `{"strict_affinity":true}`).(*model.IPAMConfig)
	if config.AutoAllocateBlocks {
		t.Error("a missing auto_allocate_blocks reads as true")
	}
	handle := mustDecode(t, model.HandleKey{ID: "a"}, `{"block":{"FD00:77::0/122":1,"fd00:77::/122":2}}`).(*model.Handle)
	if handle.Blocks[prefix("fd00:77::/122")] != 3 {
		t.Errorf("a handle with one block in two texts: %v", handle.Blocks)
	}
	if id := model.HandleIDBefore("net.abc\r junk"); id != "net.abc" {
		t.Errorf("handle id %q", id)
	}
	info := mustDecode(t, model.ResourceKey{Kind: model.KindClusterInformation, Name: "default"}, `{"spec":{}}`).(*model.ClusterInformation)
	if info.Ready != nil {
		t.Error("cluster information that does not say whether it is ready reads as if it did")
	}
}

// TestDocumentsOfOthers: a document that says it is another object is not read
// as this one; texts that are not canonical say the same, and a resource may
// leave its name to its key.
func TestDocumentsOfOthers(t *testing.T) {
	t.Parallel()
	pods := model.ResourceKey{Kind: model.KindIPPool, Name: "pods"}
	endpoint := model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "shop", Name: "e"}
	for _, row := range []struct {
		key      model.Key
		document string
		ok       bool
	}{
		{fourKey, fourBlock(map[string]string{"cidr": `"10.77.3.66/30"`}), true},
		{fourKey, fourBlock(map[string]string{"cidr": `"10.77.3.68/30"`}), false},
		{model.BlockKey{CIDR: prefix("fd00::40/126")}, fourBlock(map[string]string{"cidr": `"FD00:0::41/126"`}), true},
		{pods, `{"spec":{"cidr":"10.77.0.0/16"}}`, true},
		{pods, `{"metadata":{"name":"others"},"spec":{"cidr":"10.77.0.0/16"}}`, false},
		{endpoint, `{"metadata":{"name":"e","namespace":"shop"}}`, true},
		{endpoint, `{"metadata":{"name":"e","namespace":"shop2"}}`, false},
		{endpoint, `{"spec":{}}`, true},
	} {
		value, err := model.Decode(row.key, []byte(row.document))
		if (err == nil) != row.ok {
			t.Errorf("%s from %s: %v", row.key, row.document, err)
		}
		if pool, ok := value.(*model.IPPool); ok && pool.Metadata.Name != "pods" {
			t.Errorf("pool %+v", pool.Metadata)
		}
	}
}

func TestBadPoolRanges(t *testing.T) {
	t.Parallel()
	for cidr, want := range map[string]string{
		"10.77.0.0/16": "", "FD00::0/64": "", "10.77.0.1/16": "10.77.0.0/16", "ten": "ten", "": `""`, "10.77.0.0": "10.77.0.0",
		"::ffff:10.77.0.0/112": "IPv4", "::ffff:0.0.0.0/96": "IPv4", "::/64": "IPv4", "::1:0:0/96": "",
	} {
		pool := &model.IPPool{Metadata: model.Metadata{Name: "pods"}, RawCIDR: cidr}
		_, err := pool.CIDR()
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "pods")) {
			t.Errorf("%q: %v", cidr, err)
		}
	}
}

func TestReservedPrefixes(t *testing.T) {
	t.Parallel()
	reservation := &model.IPReservation{CIDRs: []string{"10.77.3.80/29", " 10.77.3.1 ", "::ffff:10.77.3.2", "::ffff:10.77.3.4/127", "::ffff:0.0.0.0/95", "10.77.3.9/29", "fd00::1", "", "ten"}}
	cidrs, malformed := reservation.Prefixes()
	if fmt.Sprint(cidrs) != "[10.77.3.80/29 10.77.3.1/32 10.77.3.2/32 10.77.3.4/31 ::fffe:0:0/95 10.77.3.8/29 fd00::1/128]" || fmt.Sprintf("%q", malformed) != `["" "ten"]` {
		t.Errorf("%v, malformed %q", cidrs, malformed)
	}
}
