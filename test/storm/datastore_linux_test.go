package storm

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// objects are the values of a datastore by their keys, read with nothing of
// ours, so that the storm does not believe what the code under test believes.
type objects map[string]string

func (h *host) objects(t *testing.T) objects {
	t.Helper()
	if h.etcd != nil {
		return h.etcd.Get(t, "/calico/")
	}
	found := objects{}
	path := h.file("/var/lib/calico/cni/datastore.db")
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
				// A record is a revision, a line feed and the value.
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

// each decodes every value whose key holds a text.
func each[T any](t *testing.T, o objects, text string, do func(key string, value T)) {
	t.Helper()
	for key, document := range o {
		if !strings.Contains(key, text) {
			continue
		}
		var value T
		if err := json.Unmarshal([]byte(document), &value); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		do(key[strings.Index(key, text)+len(text):], value)
	}
}

// block is the part of a block that says who has which address.
type block struct {
	CIDR        string `json:"cidr"`
	Allocations []*int `json:"allocations"`
	Attributes  []struct {
		Handle string `json:"handle_id"`
	} `json:"attributes"`
}

// allocated lists the addresses of every handle.
func (o objects) allocated(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	each(t, o, "/ipam/v2/assignment/", func(key string, b block) {
		prefix, err := netip.ParsePrefix(b.CIDR)
		if err != nil {
			t.Fatalf("block %s: %v", key, err)
		}
		address := prefix.Addr()
		for _, index := range b.Allocations {
			if index != nil {
				handle := b.Attributes[*index].Handle
				found[handle] = append(found[handle], address.String())
			}
			address = address.Next()
		}
	})
	return found
}

// handles are the counts of all handles.
func (o objects) handles(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	type handle struct {
		Block map[string]int `json:"block"`
	}
	each(t, o, "/ipam/v2/handle/", func(id string, h handle) {
		counts[id] = 0
		for _, count := range h.Block {
			counts[id] += count
		}
	})
	return counts
}

// records are the containers that endpoint records name, by host interface.
func (o objects) records(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	type endpoint struct {
		Spec struct {
			ContainerID   string `json:"containerID"`
			InterfaceName string `json:"interfaceName"`
		} `json:"spec"`
	}
	each(t, o, "/workloadendpoints/", func(_ string, e endpoint) { found[e.Spec.InterfaceName] = e.Spec.ContainerID })
	return found
}

// usage is the part of the operator's view that tells numbers.
type usage struct {
	Pools []struct {
		InUse json.Number `json:"inUse"`
	} `json:"pools"`
}

func (u usage) inUse() int {
	sum := 0
	for _, pool := range u.Pools {
		n, _ := pool.InUse.Int64() // not a number: not the number wanted
		sum += int(n)
	}
	return sum
}

// tables lists the host's netfilter tables.
func (h *host) tables(t *testing.T) []string {
	t.Helper()
	var out []byte
	h.network.Do(t, func() {
		var err error
		if out, err = exec.Command("nft", "list", "tables").CombinedOutput(); err != nil {
			t.Fatalf("nft list tables: %v\n%s", err, out)
		}
	})
	return strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(out)), " ", "_"))
}
