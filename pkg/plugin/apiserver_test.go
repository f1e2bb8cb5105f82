package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"calico-cni/pkg/connect"
)

type object = map[string]any

// apiServer is a stand-in for the Kubernetes API server: objects by path, with
// versions and identities, and no schema.
type apiServer struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[string]object
	version int
	// before runs before a request is served; true says that it has been
	// answered.
	before func(w http.ResponseWriter, r *http.Request) bool
	asked  []string
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{objects: map[string]object{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// put stores an object as new: with another identity than any before it.
func (s *apiServer) put(path string, o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(path, o, "")
}

// store must be called under the lock.
func (s *apiServer) store(path string, o object, uid string) {
	s.version++
	if uid == "" {
		uid = fmt.Sprint("uid-", s.version)
	}
	metadata := part(o, "metadata")
	metadata["resourceVersion"], metadata["uid"] = fmt.Sprint(s.version), uid
	s.objects[path] = o
}

func (s *apiServer) remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, path)
}

// annotations are those of an object; nil if it has none.
func (s *apiServer) annotations(path string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, _ := part(s.objects[path], "metadata")["annotations"].(map[string]any)
	return maps.Clone(found)
}

// below are the paths of the objects of a kind.
func (s *apiServer) below(kind string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var paths []string
	for path := range s.objects {
		if strings.Contains(path, "/"+kind+"/") {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

func (s *apiServer) requests(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, asked := range s.asked {
		if strings.HasPrefix(asked, prefix) {
			out = append(out, asked)
		}
	}
	return out
}

// part is a member that is an object, made if it is missing.
func part(o object, name string) object {
	if found, ok := o[name].(object); ok {
		return found
	}
	made := object{}
	if o != nil {
		o[name] = made
	}
	return made
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	asked := r.Method + " " + r.URL.Path
	if selector := r.URL.Query().Get("labelSelector"); selector != "" {
		asked += "?" + selector
	}
	s.asked = append(s.asked, asked)
	before := s.before
	s.mu.Unlock()
	if before != nil && before(w, r) {
		return
	}
	body := object{}
	if raw, _ := io.ReadAll(r.Body); len(raw) > 0 && json.Unmarshal(raw, &body) != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", "", "")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method {
	case http.MethodGet:
		s.get(w, r)
	case http.MethodPost:
		s.create(w, r.URL.Path+"/"+fmt.Sprint(part(body, "metadata")["name"]), body)
	case http.MethodPut:
		s.change(w, r.URL.Path, part(body, "metadata"), func(old object) object { return body })
	case http.MethodPatch:
		s.change(w, strings.TrimSuffix(r.URL.Path, "/status"), part(body, "metadata"), func(old object) object {
			maps.Copy(part(part(old, "metadata"), "annotations"), part(part(body, "metadata"), "annotations"))
			return old
		})
	case http.MethodDelete:
		s.change(w, r.URL.Path, part(body, "preconditions"), func(object) object { return nil })
	}
}

func (s *apiServer) get(w http.ResponseWriter, r *http.Request) {
	if found, ok := s.objects[r.URL.Path]; ok {
		reply(w, http.StatusOK, found)
		return
	}
	kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	items := []any{}
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		parent := path[:strings.LastIndex(path, "/")]
		if parent == r.URL.Path && selected(s.objects[path], r.URL.Query().Get("labelSelector")) {
			items = append(items, s.objects[path])
		}
	}
	if len(items) == 0 && !slices.Contains([]string{"ippools", "ipreservations", "ipamblocks", "blockaffinities", "ipamhandles"}, kind) {
		refuse(w, http.StatusNotFound, "NotFound", kind, "")
		return
	}
	reply(w, http.StatusOK, object{"kind": "List", "metadata": object{"resourceVersion": "1"}, "items": items})
}

// selected knows the terms "a=b" and "!a".
func selected(o object, selector string) bool {
	labels := part(part(o, "metadata"), "labels")
	for term := range strings.SplitSeq(selector, ",") {
		name, value, equals := strings.Cut(term, "=")
		absent, negated := strings.CutPrefix(term, "!")
		if equals && labels[name] != value || negated && labels[absent] != nil {
			return false
		}
	}
	return true
}

func (s *apiServer) create(w http.ResponseWriter, path string, o object) {
	if _, there := s.objects[path]; there {
		refuse(w, http.StatusConflict, "AlreadyExists", path, "")
		return
	}
	s.store(path, o, "")
	reply(w, http.StatusCreated, o)
}

// change applies a change if the object is there with the version and identity
// expected; nil deletes it.
func (s *apiServer) change(w http.ResponseWriter, path string, expected object, apply func(object) object) {
	old, there := s.objects[path]
	metadata := part(old, "metadata")
	for _, field := range []string{"resourceVersion", "uid"} {
		if want := expected[field]; there && want != nil && want != metadata[field] {
			refuse(w, http.StatusUnprocessableEntity, "Invalid", path, "metadata."+field)
			return
		}
	}
	if !there {
		refuse(w, http.StatusNotFound, "NotFound", path, "")
		return
	}
	uid := fmt.Sprint(metadata["uid"])
	if changed := apply(old); changed != nil {
		s.store(path, changed, uid)
		reply(w, http.StatusOK, changed)
		return
	}
	delete(s.objects, path)
	reply(w, http.StatusOK, object{"kind": "Status", "status": "Success"})
}

func reply(w http.ResponseWriter, code int, o object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o) // a caller that has gone learns nothing
}

func refuse(w http.ResponseWriter, code int, reason, name, field string) {
	details := object{"name": name}
	if field != "" {
		details["causes"] = []any{object{"field": field}}
	}
	reply(w, code, object{"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason, "details": details})
}

const (
	crd         = "/apis/crd.projectcalico.org/v1"
	apiPod      = "/api/v1/namespaces/shop/pods/web-0"
	annotatedBy = "cni.projectcalico.org/"
)

// clusterNode is a node whose datastore is an API server, with the pod web-0.
func clusterNode(t *testing.T) (*node, *apiServer) {
	t.Helper()
	n, s := newNode(t), newAPIServer(t)
	named := func(name string) object { return object{"name": name} }
	s.put(crd+"/clusterinformations/default", object{"metadata": named("default"), "spec": object{"datastoreReady": true}})
	s.put(crd+"/ippools/pods", object{"metadata": named("pods"), "spec": object{"cidr": "10.77.0.0/24", "blockSize": 26}})
	s.put("/api/v1/nodes/"+nodeName, object{"metadata": named(nodeName), "spec": object{"podCIDRs": []any{"10.244.1.0/24"}}})
	s.put("/api/v1/namespaces/shop", object{"metadata": named("shop")})
	s.putPod()
	n.plugin.Open = connect.Open(func(string) string { return "" })
	return n, s
}

// putPod makes the pod anew.
func (s *apiServer) putPod() {
	s.put(apiPod, object{
		"metadata": object{"name": "web-0", "namespace": "shop"},
		"spec":     object{"nodeName": nodeName, "serviceAccountName": "web"},
	})
}

// cluster is the configuration of a cluster whose datastore is this server.
func (n *node) cluster(s *apiServer, members ...any) []byte {
	return n.policy(append([]any{
		"datastore_type", "kubernetes", "calico_api_group", "crd.projectcalico.org/v1", "kubernetes", map[string]any{"k8s_api_root": s.URL},
	}, members...)...)
}
