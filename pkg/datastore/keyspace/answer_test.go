package keyspace

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

func TestAnswerGet(t *testing.T) {
	t.Parallel()
	get := datastore.Get{Key: a}
	if answer, err := Answer(get, nil, false); err != nil || len(answer.Entries) != 0 {
		t.Errorf("nothing there: %v, %v", answer, err)
	}
	records := []Record{{Path: a.Path(), Value: []byte(`{"block":{},"deleted":true}`), Revision: "7"}}
	answer, err := Answer(get, records, false)
	if err != nil {
		t.Fatal(err)
	}
	if found, revision := datastore.One[model.Handle](answer); found == nil || !found.Deleted || revision != "7" {
		t.Errorf("found %+v at %q", found, revision)
	}
	records[0].Value = []byte(`{`)
	if _, err := Answer(get, records, false); err == nil || !strings.Contains(err.Error(), a.String()) {
		t.Errorf("a value that does not parse: %v", err)
	}
}

func TestAnswerList(t *testing.T) {
	t.Parallel()
	const affinities = "/calico/ipam/v2/host/"
	records := []Record{
		{Path: affinities + "a", Value: nil}, // a legacy host marker
		{Path: affinities + "a/ipv4/block/10.77.0.0-26", Value: nil},
		{Path: affinities + "a/ipv4/block/10.77.0.1-26", Value: nil}, // host bits
		{Path: affinities + "a/ipv4/block/10.77.0.64-26", Value: []byte(`{"state":"pending","deleted":true}`)},
		{Path: affinities + "a/ipv6/block/fd00::-122", Value: nil},
		{Path: affinities + "b/ipv4/block/10.77.1.0-26", Value: []byte(`{`)},
		{Path: affinities + "b/ipv4/block/10.77.1.64-26", Value: []byte(`{"state":"pending"}`)},
	}
	for name, row := range map[string]struct {
		query datastore.Query
		want  []string
	}{
		"IPv4": {datastore.ListAffinities{Type: "host", Family: model.IPv4}, []string{"10.77.0.0/26", "10.77.1.64/26"}},
		"IPv6": {datastore.ListAffinities{Family: model.IPv6}, []string{"fd00::/122"}},
	} {
		answer, err := Answer(row.query, records, true)
		if err != nil || !answer.More {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
		var found []string
		for _, entry := range answer.Entries {
			found = append(found, entry.Key.(model.AffinityKey).CIDR.String())
		}
		if !slices.Equal(found, row.want) {
			t.Errorf("%s: found %q, want %q", name, found, row.want)
		}
	}
}

func TestAnswerKeysOnly(t *testing.T) {
	t.Parallel()
	key := model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/26")}
	records := []Record{{Path: key.Path(), Revision: "7"}, {Path: key.Path() + "x"}}
	answer, err := Answer(datastore.ListBlocks{Family: model.IPv4, KeysOnly: true}, records, false)
	want := datastore.Entry{Key: key, Revision: "7"}
	if err != nil || len(answer.Entries) != 1 || answer.Entries[0] != want {
		t.Errorf("%+v, %v; want %+v", answer, err, want)
	}
	if answer, _ := Answer(datastore.ListBlocks{Family: model.IPv4}, records, false); len(answer.Entries) != 0 {
		t.Errorf("a block without value: %+v", answer)
	}
}
