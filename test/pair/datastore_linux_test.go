package pair

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// datastoreFile is where the embedded datastore is by default.
const datastoreFile = "/var/lib/calico/cni/datastore.db"

// objects are the values of a datastore by their keys. It is read with nothing
// of ours, so that a test does not believe what the code under test believes.
type objects map[string]string

// objects reads the host's datastore.
func (h *host) objects(t *testing.T) objects {
	t.Helper()
	if h.read != nil {
		return h.read(t)
	}
	if h.etcd != nil {
		return h.etcd.Get(t, "/calico/")
	}
	return h.embedded(t)
}

// embedded reads the embedded datastore; none if it was never made. A record
// is a revision, a line feed and the value.
func (h *host) embedded(t *testing.T) objects {
	t.Helper()
	found := objects{}
	path := h.file(datastoreFile)
	if _, err := os.Stat(path); os.IsNotExist(err) {
		return found
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatalf("opening the datastore: %v", err)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(_ []byte, bucket *bolt.Bucket) error {
			return bucket.ForEach(func(key, record []byte) error {
				_, value, _ := strings.Cut(string(record), "\n")
				found[string(key)] = value
				return nil
			})
		})
	})
	if err != nil {
		t.Fatalf("reading the datastore: %v", err)
	}
	return found
}

// under returns the objects whose key holds a text, by key.
func (o objects) under(text string) objects {
	found := maps.Clone(o)
	maps.DeleteFunc(found, func(key, _ string) bool { return !strings.Contains(key, text) })
	return found
}

func (o objects) keys() []string { return slices.Sorted(maps.Keys(o)) }

// block is the part of a block that says who has which address.
type block struct {
	CIDR        string `json:"cidr"`
	Affinity    string `json:"affinity"`
	Allocations []*int `json:"allocations"`
	Attributes  []struct {
		Handle    string            `json:"handle_id"`
		Secondary map[string]string `json:"secondary"`
	} `json:"attributes"`
}

// allocated lists "<block> <ordinal>" of every allocation, by handle.
func (o objects) allocated(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, b := range o.blocks(t) {
		for ordinal, index := range b.Allocations {
			if index == nil {
				continue
			}
			handle := b.Attributes[*index].Handle
			found[handle] = append(found[handle], addressAt(t, b.CIDR, ordinal))
		}
	}
	for handle := range found {
		slices.Sort(found[handle])
	}
	return found
}

// endpoint is the part of a WorkloadEndpoint that tests look at.
type endpoint struct {
	Spec struct {
		ContainerID   string   `json:"containerID"`
		Endpoint      string   `json:"endpoint"`
		InterfaceName string   `json:"interfaceName"`
		IPNetworks    []string `json:"ipNetworks"`
		Profiles      []string `json:"profiles"`
		MAC           string   `json:"mac"`
		Orchestrator  string   `json:"orchestrator"`
		Node          string   `json:"node"`
	} `json:"spec"`
}

func (o objects) endpoints(t *testing.T) map[string]endpoint {
	t.Helper()
	found := map[string]endpoint{}
	for key, value := range o.under("/workloadendpoints/") {
		var e endpoint
		if err := json.Unmarshal([]byte(value), &e); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		found[key[strings.LastIndex(key, "/")+1:]] = e
	}
	return found
}

// resourceRoot begins the keys of Calico's resources.
const resourceRoot = "/calico/resources/v3/projectcalico.org/"

// put writes objects as another program would; an empty value deletes.
func (h *host) put(t *testing.T, changes objects) {
	t.Helper()
	db, err := bolt.Open(h.file(datastoreFile), 0o600, &bolt.Options{Timeout: 10 * time.Second})
	if err != nil {
		t.Fatalf("opening the datastore: %v", err)
	}
	defer db.Close()
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.ForEach(func(_ []byte, bucket *bolt.Bucket) error {
			for key, value := range changes {
				if value == "" {
					if err := bucket.Delete([]byte(key)); err != nil {
						return err
					}
					continue
				}
				revision, err := bucket.NextSequence()
				if err != nil {
					return err
				}
				if err := bucket.Put([]byte(key), fmt.Appendf(nil, "%d\n%s", revision, value)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Fatalf("writing the datastore: %v", err)
	}
}

// poolObject is a pool as calicoctl would write it; spec is the inside of its
// spec object.
func poolObject(name, spec string) objects {
	return objects{resourceRoot + "ippools/" + name: `{"kind":"IPPool","apiVersion":"projectcalico.org/v3",` +
		`"metadata":{"name":"` + name + `","creationTimestamp":null},"spec":{` + spec + `}}`}
}
