package model_test

import (
	"bufio"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/model"
)

// recorded is an object that Calico v3.32.1 keeps in a Kubernetes cluster.
type recorded struct {
	Kind     string          `json:"kind"`
	Metadata model.Metadata  `json:"metadata"`
	Spec     json.RawMessage `json:"spec"`
	raw      string
}

func recordedObjects(t testing.TB) map[string][]recorded {
	t.Helper()
	file, err := os.Open("../../testdata/kubernetes/recorded.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	objects := map[string][]recorded{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		o := recorded{raw: lines.Text()}
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			t.Fatal(err)
		}
		objects[o.Kind] = append(objects[o.Kind], o)
	}
	return objects
}

// likes are keys of the types that have specs of their own.
var likes = map[string]model.Key{
	"IPAMBlock": model.BlockKey{}, "BlockAffinity": model.AffinityKey{}, "IPAMHandle": model.HandleKey{}, "IPAMConfig": model.IPAMConfigKey{},
}

// TestRecordedSpecs demands that reading and writing changes no member, in
// either group but for the affinity's flag.
func TestRecordedSpecs(t *testing.T) {
	t.Parallel()
	objects := recordedObjects(t)
	for kind, like := range likes {
		if len(objects[kind]) == 0 {
			t.Errorf("the data hold no %s", kind)
		}
		for _, o := range objects[kind] {
			key, value, err := model.DecodeSpec(like, o.Spec)
			if err != nil {
				t.Fatal(err)
			}
			for group, want := range map[model.APIGroup]string{
				model.GroupV1: string(o.Spec),
				model.GroupV3: strings.Replace(string(o.Spec), `"deleted":"false"`, `"deleted":false`, 1),
			} {
				written, err := model.EncodeSpec(group, key, value)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(members(t, written), members(t, []byte(want))) {
					t.Errorf("%s in %s\nread    %s\nwritten %s", key, group, want, written)
				}
			}
		}
	}
}

func TestUnknownSpecMembers(t *testing.T) {
	t.Parallel()
	for kind, like := range likes {
		for _, o := range recordedObjects(t)[kind] {
			spec := strings.Replace(string(o.Spec), "{", `{"future":{"n":18446744073709551615},`, 1)
			key, value, err := model.DecodeSpec(like, []byte(spec))
			if err != nil {
				t.Fatal(err)
			}
			written, err := model.EncodeSpec(model.GroupV1, key, value)
			if err != nil || !reflect.DeepEqual(members(t, written), members(t, []byte(spec))) {
				t.Errorf("%s: %v\nread    %s\nwritten %s", key, err, spec, written)
			}
		}
	}
}

// TestOddAffinitySpecs are the rows of datastore contract 8 about affinities.
func TestOddAffinitySpecs(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]model.Affinity{
		`{"node":"n1","cidr":"10.77.3.64/26","deleted":"","state":""}`:                          {State: model.StateLegacy},
		`{"node":"n1","cidr":"10.77.3.64/26","deleted":"true","state":"pending"}`:               {State: model.StatePending, Deleted: true},
		`{"node":"n1","cidr":"10.77.3.64/26","deleted":true,"state":"confirmed","type":"host"}`: {State: model.StateConfirmed, Deleted: true},
		`{"node":"n1","cidr":"10.77.3.64/26"}`:                                                  {},
	} {
		key, value, err := model.DecodeSpec(model.AffinityKey{}, []byte(spec))
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if key != (model.AffinityKey{Type: model.AffinityHost, Host: "n1", CIDR: prefix("10.77.3.64/26")}) {
			t.Errorf("%s: key %v", spec, key)
		}
		if found := value.(*model.Affinity); found.State != want.State || found.Deleted != want.Deleted {
			t.Errorf("%s: %+v, want %+v", spec, found, want)
		}
	}
	for _, spec := range []string{`{}`, `[]`, `{"node":"n1","cidr":"10.77"}`, `{"cidr":"10.77.3.64/26"}`} {
		if key, _, err := model.DecodeSpec(model.AffinityKey{}, []byte(spec)); err == nil {
			t.Errorf("%s: read as %v", spec, key)
		}
	}
}

// TestRequiredSpecMembers: the schema refuses objects without them, and null.
func TestRequiredSpecMembers(t *testing.T) {
	t.Parallel()
	block := model.NewBlock(prefix("10.77.3.64/30"), "", time.Unix(1, 0), nil)
	block.Unallocated = nil
	for want, object := range map[string]struct {
		key   model.Key
		value any
	}{
		`"allocations":[null,null,null,null],"attributes":[],`:   {model.BlockKey{CIDR: block.CIDR}, block},
		`"strictAffinity":false,"unallocated":[]`:                {model.BlockKey{CIDR: block.CIDR}, block},
		`{"autoAllocateBlocks":false,"strictAffinity":false}`:    {model.IPAMConfigKey{}, &model.IPAMConfig{}},
		`{"block":{},"deleted":false,"handleID":"Net-A.ABC"}`:    {model.HandleKey{ID: "Net-A.ABC"}, &model.Handle{}},
		`"deleted":"false","node":"n1","state":"","type":"host"`: {model.AffinityKey{Type: "host", Host: "n1", CIDR: block.CIDR}, &model.Affinity{}},
	} {
		spec, err := model.EncodeSpec(model.GroupV1, object.key, object.value)
		if err != nil || !strings.Contains(string(spec), want) {
			t.Errorf("%s: %s, %v, want %s in it", object.key, spec, err, want)
		}
		if strings.Contains(string(spec), `"affinity"`) {
			t.Errorf("an affinity without owner: %s", spec)
		}
	}
}
