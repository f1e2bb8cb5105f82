package model_test

import (
	"testing"
	"time"

	"calico-cni/pkg/model"
)

// TestClones changes a clone everywhere and demands that the original stays.
func TestClones(t *testing.T) {
	t.Parallel()
	for _, one := range cluster(t) {
		key := mustParse(t, one.Key)
		value := mustDecode(t, key, string(one.Value))
		before := mustEncode(t, key, value)
		spoilClone(value)
		if after := mustEncode(t, key, value); after != before {
			t.Errorf("%s\nwas %s\nis  %s", one.Key, before, after)
		}
	}
}

func spoilClone(value any) {
	switch v := value.(type) {
	case *model.Block:
		clone := v.Clone()
		clone.Allocations[0], clone.Unallocated[0] = 7, 7
		clone.SequenceForAllocation[0] = 7
		for i := range clone.Attributes {
			clone.Attributes[i].Owner["node"] = "spoiled"
			clone.Attributes[i].ReleasedAt = time.Now()
		}
	case *model.Handle:
		clear(v.Clone().Blocks)
	case *model.WorkloadEndpoint:
		clone := v.Clone()
		clone.Metadata.Labels["spoiled"] = "true"
		clone.Spec.IPNetworks[0], clone.Spec.Profiles[0] = "spoiled", "spoiled"
	}
}

// TestNewProfile compares with the profile that the reference creates.
func TestNewProfile(t *testing.T) {
	t.Parallel()
	for _, one := range cluster(t) {
		key, _ := mustParse(t, one.Key).(model.ResourceKey)
		if key.Kind != model.KindProfile {
			continue
		}
		profile := model.NewProfile(key.Name, false)
		stored := mustDecode(t, key, string(one.Value)).(*model.Profile)
		profile.Metadata = stored.Metadata
		if made, want := mustEncode(t, key, profile), mustEncode(t, key, stored); made != want {
			t.Errorf("made %s\nwant %s", made, want)
		}
		return
	}
	t.Error("the data holds no profile")
}
