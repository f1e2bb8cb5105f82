package model_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"calico-cni/pkg/model"
)

// stored is one key of a cluster that Calico v3.32.1 wrote.
type stored struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

func cluster(t testing.TB) []stored {
	t.Helper()
	data, err := os.ReadFile("testdata/cluster.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var all []stored
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var one stored
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// members decodes a document without losing digits.
func members(t testing.TB, document []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return value
}

func mustDecode(t testing.TB, key model.Key, document string) any {
	t.Helper()
	value, err := model.Decode(key, []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func mustEncode(t testing.TB, key model.Key, value any) string {
	t.Helper()
	document, err := model.Encode(key, value)
	if err != nil {
		t.Fatal(err)
	}
	return string(document)
}

func mustParse(t testing.TB, path string) model.Key {
	t.Helper()
	key, ok := model.ParsePath(path)
	if !ok {
		t.Fatalf("%q is no object's path", path)
	}
	return key
}

// TestReferenceDocuments demands that reading and writing what the reference
// wrote changes no member.
func TestReferenceDocuments(t *testing.T) {
	t.Parallel()
	kinds := map[reflect.Type]bool{}
	for _, one := range cluster(t) {
		key := mustParse(t, one.Key)
		value := mustDecode(t, key, string(one.Value))
		kinds[reflect.TypeOf(value)] = true
		written := mustEncode(t, key, value)
		if !reflect.DeepEqual(members(t, []byte(written)), members(t, one.Value)) {
			t.Errorf("%s\nread    %s\nwritten %s", one.Key, one.Value, written)
		}
	}
	if len(kinds) != 9 {
		t.Errorf("the data holds %d kinds of objects, want 9", len(kinds))
	}
}

// TestUnknownMembers demands that members of other writers survive, wherever
// they are.
func TestUnknownMembers(t *testing.T) {
	t.Parallel()
	const extra = `"future":{"n":18446744073709551615,"list":[1,null,"<a>"]}`
	for _, one := range cluster(t) {
		key := mustParse(t, one.Key)
		places := []string{`{`}
		if _, resource := key.(model.ResourceKey); resource {
			places = append(places, `"metadata":{`, `"spec":{`)
		}
		if _, block := key.(model.BlockKey); block && bytes.Contains(one.Value, []byte(`"handle_id"`)) {
			places = append(places, `"attributes":[{`)
		}
		for _, place := range places {
			document := strings.Replace(string(one.Value), place, place+extra+",", 1)
			document = strings.Replace(document, ",}", "}", 1) // in an empty object
			written := mustEncode(t, key, mustDecode(t, key, document))
			if !reflect.DeepEqual(members(t, []byte(written)), members(t, []byte(document))) {
				t.Errorf("%s\nread    %s\nwritten %s", one.Key, document, written)
			}
		}
	}
}

// TestMembersInAnotherCase: every reader in Go takes them for the known ones,
// so they may not be written beside them.
func TestMembersInAnotherCase(t *testing.T) {
	t.Parallel()
	key := mustParse(t, "/calico/ipam/v2/host/worker-b/ipv4/block/10.77.3.64-26")
	affinity := mustDecode(t, key, `{"State":"pending","other":1}`).(*model.Affinity)
	affinity.State = model.StateConfirmed
	if written := mustEncode(t, key, affinity); written != `{"state":"confirmed","deleted":false,"other":1}` {
		t.Errorf("written: %s", written)
	}
}

func TestStoredRevisionIsForgotten(t *testing.T) {
	t.Parallel()
	key := model.ResourceKey{Kind: model.KindNode, Name: "n1"}
	node := mustDecode(t, key, `{"metadata":{"name":"n1","resourceVersion":"77","future":1}}`)
	if written := mustEncode(t, key, node); strings.Contains(written, "77") || !strings.Contains(written, "future") {
		t.Errorf("written: %s", written)
	}
}

func TestDecodeErrorsNameTheObject(t *testing.T) {
	t.Parallel()
	for path, document := range map[string]string{
		"/calico/ipam/v2/assignment/ipv4/block/10.77.3.64-26":    `{`,
		"/calico/ipam/v2/host/worker-b/ipv4/block/10.77.3.64-26": `{"state":1}`,
		"/calico/ipam/v2/handle/net.abc":                         `{"block":{"ten":1}}`,
		"/calico/ipam/v2/config":                                 `{"maxBlocksPerHost":"4"}`,
		"/calico/resources/v3/projectcalico.org/ippools/pods":    `{"spec":{"blockSize":"26"}}`,
		"/calico/resources/v3/projectcalico.org/nodes/n1":        `[]`,
		"/calico/resources/v3/projectcalico.org/profiles/a":      ``,
	} {
		key := mustParse(t, path)
		if _, err := model.Decode(key, []byte(document)); err == nil || !strings.Contains(err.Error(), key.String()) {
			t.Errorf("%s with value %q: %v, want an error that names the %s", path, document, err, key)
		}
	}
}
