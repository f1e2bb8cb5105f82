package model_test

import (
	"maps"
	"slices"
	"testing"

	"calico-cni/pkg/model"
)

const annotatedPool = `{"apiVersion":"crd.projectcalico.org/v1","kind":"IPPool","metadata":{
	"name":"pods","uid":"6f1c2a40-93b7-4d0e-8a51-0c7be2f9d318","resourceVersion":"7","generation":3,
	"creationTimestamp":"2026-03-04T05:06:07Z","deletionTimestamp":"2026-03-05T00:00:00Z",
	"finalizers":["projectcalico.org/ippool-finalizer"],"managedFields":[{"manager":"x"}],
	"labels":{"native":"1","both":"native"},
	"annotations":{"kept":"yes","projectcalico.org/metadata":"{\"creationTimestamp\":null,\"name\":\"other\",\"labels\":{\"own\":\"2\",\"both\":\"own\"}}"}},
	"spec":{"cidr":"10.77.0.0/16"},
	"status":{"conditions":[{"type":"Allocatable","status":"False","reason":"CIDROverlap"}]}}`

// TestResourceMetadata is datastore contract 3.1: what counts where.
func TestResourceMetadata(t *testing.T) {
	t.Parallel()
	key := model.ResourceKey{Kind: model.KindIPPool, Name: "pods"}
	read := func(group model.APIGroup) *model.IPPool {
		value, err := model.DecodeResource(group, key, []byte(annotatedPool))
		if err != nil {
			t.Fatal(err)
		}
		return value.(*model.IPPool)
	}
	v1, v3 := read(model.GroupV1), read(model.GroupV3)
	for name, row := range map[string]struct {
		pool        *model.IPPool
		uid         string
		labels      map[string]string
		annotations []string
	}{
		"v1": {v1, "f6385402-c9ed-4d70-8a8a-30de479fcb18", map[string]string{"native": "1", "own": "2", "both": "own"}, []string{"kept"}},
		"v3": {v3, "6f1c2a40-93b7-4d0e-8a51-0c7be2f9d318", map[string]string{"native": "1", "both": "native"}, []string{"kept", model.MetadataAnnotation}},
	} {
		m := row.pool.Metadata
		if m.Name != "pods" || m.UID != row.uid || !m.Deleting || m.Created.IsZero() || len(m.Finalizers) != 1 {
			t.Errorf("%s: %+v", name, m)
		}
		if !maps.Equal(m.Labels, row.labels) {
			t.Errorf("%s: labels %v, want %v", name, m.Labels, row.labels)
		}
		if found := slices.Sorted(maps.Keys(m.Annotations)); !slices.Equal(found, row.annotations) {
			t.Errorf("%s: annotations %v, want %v", name, found, row.annotations)
		}
		if row.pool.Enabled() || !row.pool.NotAllocatable {
			t.Errorf("%s: a pool that is being deleted, and not allocatable, counts as enabled", name)
		}
	}
}

func TestCoreNode(t *testing.T) {
	t.Parallel()
	node, err := model.DecodeCoreNode([]byte(`{"metadata":{"name":"worker-b","uid":"u","resourceVersion":"9","managedFields":[],
		"labels":{"zone":"b","both":"native"},"annotations":{
		"projectcalico.org/labels":"{\"own\":\"1\",\"both\":\"own\"}","projectcalico.org/IPv4Address":"192.0.2.12/24",
		"projectcalico.org/ASNumber":"64512","projectcalico.org/Interfaces":"not JSON","projectcalico.org/IPv4VXLANTunnelAddr":"10.77.3.66"}},
		"spec":{"podCIDR":"10.77.3.0/24","podCIDRs":["10.77.3.0/24","fd00::/64"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"zone": "b", "both": "native", "own": "1"}; !maps.Equal(node.Metadata.Labels, want) {
		t.Errorf("labels %v, want %v", node.Metadata.Labels, want)
	}
	if found := node.Metadata.Annotations["projectcalico.org/kube-labels"]; found != `{"both":"native","zone":"b"}` {
		t.Errorf("native labels kept as %s", found)
	}
	if cidrs := node.PodCIDRs(); !slices.Equal(cidrs, []string{"10.77.3.0/24", "fd00::/64"}) {
		t.Errorf("pod CIDRs %v", cidrs)
	}
	const want = `"spec":{"bgp":{"asNumber":64512,"ipv4Address":"192.0.2.12/24"},"ipv4VXLANTunnelAddr":"10.77.3.66"},"status":{"podCIDRs":["10.77.3.0/24","fd00::/64"]}}`
	written := mustEncode(t, model.ResourceKey{Kind: model.KindNode, Name: "worker-b"}, node)
	if len(written) < len(want) || written[len(written)-len(want):] != want {
		t.Errorf("written %s, want %s at its end", written, want)
	}
}
