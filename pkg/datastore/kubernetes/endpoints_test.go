package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

var endpointKey = model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "shop", Name: "n1-k8s-web--0-eth0"}

// TestEndpointPatches are the bodies of datastore contract 4.11.
func TestEndpointPatches(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPatch || r.URL.Path != "/api/v1/namespaces/shop/pods/web-0/status" ||
			r.Header.Get("Content-Type") != "application/strategic-merge-patch+json" {
			t.Errorf("%s %s with a %s", r.Method, r.URL.Path, r.Header.Get("Content-Type"))
		}
		fmt.Fprint(w, `{"kind":"PartialObjectMetadata","metadata":{"name":"web-0","uid":"u1","resourceVersion":"8"}}`)
	})
	store := s.open()
	full := &model.WorkloadEndpoint{
		Metadata: model.Metadata{Name: endpointKey.Name, Namespace: "shop", UID: "u1"},
		Spec:     model.WorkloadEndpointSpec{ContainerID: "3f9c", IPNetworks: []string{"10.77.3.64/32", "fd00:77:1::40/128"}},
	}
	bare := full.Clone()
	bare.Spec.IPNetworks = nil
	const taken = `"cni.projectcalico.org/containerID":"3f9c","cni.projectcalico.org/podIP":"10.77.3.64/32","cni.projectcalico.org/podIPs":"10.77.3.64/32,fd00:77:1::40/128"`
	const given = `"cni.projectcalico.org/podIP":"","cni.projectcalico.org/podIPs":""`
	for _, row := range []struct {
		mutation datastore.Mutation
		want     string
	}{
		{datastore.Put(endpointKey, full, "7@u1"), `{"metadata":{"uid":"u1","annotations":{` + taken + `}}}`},
		{datastore.Put(endpointKey, full, datastore.Absent), `{"metadata":{"uid":"u1","annotations":{` + taken + `}}}`},
		{datastore.Put(endpointKey, bare, "7@u1"), `{"metadata":{"uid":"u1","annotations":{"cni.projectcalico.org/containerID":"3f9c"}}}`},
		{datastore.Remove(endpointKey, "7@u1"), `{"metadata":{"uid":"u1","resourceVersion":"7","annotations":{` + given + `}}}`},
		{datastore.Remove(endpointKey, datastore.Any), `{"metadata":{"annotations":{` + given + `}}}`},
	} {
		written, err := store.Write(s.ctx(), datastore.Step{row.mutation})
		if err != nil {
			t.Fatal(err)
		}
		if revision := written[endpointKey]; row.mutation.Op != datastore.Delete && revision != "8@u1" {
			t.Errorf("revision %q", revision)
		}
		if body := s.bodies[s.count()-1]; !reflect.DeepEqual(parsed(t, body), parsed(t, row.want)) {
			t.Errorf("sent %s, want %s", body, row.want)
		}
	}
}

func parsed(t *testing.T, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestFlaggedObjectThatChanges: a deletion that another writer began is
// finished on what the object is now, unless it lives again.
func TestFlaggedObjectThatChanges(t *testing.T) {
	t.Parallel()
	for _, lives := range []bool{false, true} {
		s := newServer(t, nil)
		version, tries := 1, 0
		s.answer = func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodGet:
				fmt.Fprintf(w, `{"metadata":{"name":"net.a","uid":"u1","resourceVersion":"%d"},"spec":{"handleID":"net.a","block":{},"deleted":%v}}`, version, !lives || version == 1)
			case tries == 0:
				tries, version = 1, 2
				refuse(w, 409, "Conflict", "ResourceVersion in precondition: 1, ResourceVersion in object meta: 2", nil)
			default:
				fmt.Fprint(w, `{"kind":"Status","status":"Success"}`)
			}
		}
		answers, err := s.open().Read(s.ctx(), datastore.Get{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		want := 4 // GET, DELETE, GET, DELETE
		if lives {
			want = 3
		}
		if found := len(answers[0].Entries) == 1; found != lives || s.count() != want {
			t.Errorf("lives %v: found %v after %d requests, want %d", lives, found, s.count(), want)
		}
		if body, want := s.bodies[1], `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"u1","resourceVersion":"1"}}`; !reflect.DeepEqual(parsed(t, body), parsed(t, want)) {
			t.Errorf("sent %s, want %s", body, want)
		}
	}
}

// TestObjectOfAnother: names of objects are not unique in everything that the
// key has; what is found must be what was asked for.
func TestObjectOfAnother(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"metadata":{"name":"n1-10-77-0-0-26","uid":"u1","resourceVersion":"1"},"spec":{"node":"n1","type":"virtual","cidr":"10.77.0.0/26","state":"confirmed","deleted":"false"}}`)
	})
	asked := model.AffinityKey{Type: model.AffinityHost, Host: "n1", CIDR: model.BlockKey{}.CIDR}
	asked.CIDR, _ = model.ParseCIDRName("10-77-0-0-26")
	if answers, err := s.open().Read(s.ctx(), datastore.Get{Key: asked}); err == nil {
		t.Errorf("found %v", answers)
	}
}
