package plugin

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
)

func TestWindowsHostLocal(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		ipam       map[string]any
		start, end any
		wrong      bool
	}{
		"pod CIDR":        {map[string]any{"subnet": "usePodCidr"}, "10.244.1.3", "10.244.1.254", false},
		"a range":         {map[string]any{"subnet": "10.1.2.0/25"}, "10.1.2.3", "10.1.2.126", false},
		"host bits":       {map[string]any{"subnet": "10.1.2.77/26"}, "10.1.2.67", "10.1.2.126", false},
		"narrower":        {map[string]any{"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.10", "rangeEnd": "10.1.2.20"}, "10.1.2.10", "10.1.2.20", false},
		"too wide":        {map[string]any{"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.1", "rangeEnd": "10.1.2.255"}, "10.1.2.3", "10.1.2.254", false},
		"elsewhere":       {map[string]any{"subnet": "10.1.2.0/24", "rangeStart": "10.9.2.10", "rangeEnd": "10.9.2.20"}, "10.1.2.3", "10.1.2.254", false},
		"no address":      {map[string]any{"subnet": "10.1.2.0/24", "rangeStart": "x"}, nil, nil, true},
		"IPv6 is no care": {map[string]any{"subnet": "fd00::/64"}, nil, nil, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := onWindows(t)
			w.members = append(w.members, "mode", "")
			w.install("host-local", reported)
			key := model.ResourceKey{Kind: model.KindNode, Name: nodeName}
			entry := w.entries(datastore.Get{Key: key})[0]
			node := &model.Node{}
			if err := json.Unmarshal([]byte(`{"metadata":{"name":"`+nodeName+`"},"status":{"podCIDRs":["10.244.1.0/24"]}}`), node); err != nil {
				t.Fatal(err)
			}
			w.put(datastore.Step{datastore.Put(key, node, entry.Revision)})
			c.ipam["type"] = "host-local"
			_, err := w.runAdd(w.pod(invocation.Add, "web-0", "ipam", c.ipam))
			if c.wrong {
				wantCode(t, err, cnierr.InvalidConfiguration, "rangeStart")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			body, err := os.ReadFile(filepath.Join(w.bin, "stdin.ADD"))
			if err != nil {
				t.Fatal(err)
			}
			var sent struct{ IPAM map[string]any }
			if err := json.Unmarshal(body, &sent); err != nil || sent.IPAM["rangeStart"] != c.start || sent.IPAM["rangeEnd"] != c.end {
				t.Errorf("host-local got %v, %v", sent.IPAM, errors.Join(err))
			}
		})
	}
}
