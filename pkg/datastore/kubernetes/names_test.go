package kubernetes

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// TestBlockKeys: the keys of blocks come from tables, page by page, and from
// metadata where a server has no table.
func TestBlockKeys(t *testing.T) {
	t.Parallel()
	const columns = `"columnDefinitions":[{"name":"Owner","format":""},{"name":"Name","format":"name"}]`
	for name, test := range map[string]struct {
		first, second string
		refused       string
	}{
		"tables": {
			`{"kind":"Table","metadata":{"continue":"more"},` + columns + `,"rows":[{"cells":["a","10-77-0-0-26"]},{"cells":["b","no-block"]}]}`,
			`{"kind":"Table","metadata":{},"rows":[{"cells":["a","10-77-0-64-26"]}],` + columns + `}`, "",
		},
		"metadata": {
			`{"kind":"PartialObjectMetadataList","metadata":{"continue":"more"},"items":[{"metadata":{"name":"10-77-0-0-26"}}]}`,
			`{"kind":"PartialObjectMetadataList","metadata":{},"items":[{"metadata":{"name":"10-77-0-64-26"}},{"metadata":{"name":"fd00-77---7a"}}]}`, "",
		},
		"table without names": {
			`{"kind":"Table","metadata":{},"columnDefinitions":[{"name":"Age"}],"rows":[{"cells":["5m"]}]}`, "",
			"a table that tells no names",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				if accept := r.Header.Get("Accept"); !strings.HasPrefix(accept, "application/json;as=Table") || !strings.Contains(accept, "as=PartialObjectMetadataList") {
					t.Errorf("Accept: %s", accept)
				}
				if r.URL.Query().Get("includeObject") != "None" {
					t.Errorf("asked %s", r.URL.RawQuery)
				}
				if r.URL.Query().Get("continue") == "" {
					fmt.Fprint(w, test.first)
				} else {
					fmt.Fprint(w, test.second)
				}
			})
			answers, err := s.open().Read(s.ctx(), datastore.ListBlocks{Family: model.IPv4, KeysOnly: true})
			if test.refused != "" {
				if err == nil || !strings.Contains(err.Error(), test.refused) {
					t.Errorf("error %v, want one that tells of %s", err, test.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, entry := range answers[0].Entries {
				got = append(got, entry.Key.(model.BlockKey).CIDR.String())
			}
			if want := "10.77.0.0/26 10.77.0.64/26"; strings.Join(got, " ") != want {
				t.Errorf("keys of %s, want %s", got, want)
			}
		})
	}
}
