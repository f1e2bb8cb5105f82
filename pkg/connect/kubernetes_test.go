package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// testServer answers gets of what it holds, by path.
type testServer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
	// authorization is that of the last request.
	authorization string
}

func newAPIServer(t *testing.T, objects map[string]string) *testServer {
	t.Helper()
	s := &testServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked, s.authorization = append(s.asked, r.URL.Path), r.Header.Get("Authorization")
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if body, ok := objects[r.URL.Path]; ok {
			fmt.Fprint(w, body)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "code": 404, "reason": "NotFound", "details": map[string]any{"name": "x", "kind": "x"}})
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *testServer) paths() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.asked, " ")
}

const (
	namespacePath = "/api/v1/namespaces/shop"
	namespaceJSON = `{"kind":"Namespace","metadata":{"name":"shop","uid":"n1","resourceVersion":"5","labels":{"team":"a"}}}`
)

func namespaceOf(t *testing.T, reader Reader) *model.Namespace {
	t.Helper()
	answers, err := reader.Read(deadline(t), datastore.Get{Key: model.ResourceKey{Kind: model.KindNamespace, Name: "shop"}})
	if err != nil {
		t.Fatal(err)
	}
	namespace, _ := datastore.One[model.Namespace](answers[0])
	return namespace
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestOpenKubernetes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		groups, group, want string
	}{
		"the old group by name":    {"", "crd.projectcalico.org/v1", "/apis/crd.projectcalico.org/v1/ippools/p"},
		"the native group by name": {"", "ProjectCalico.org/v3", "/apis/projectcalico.org/v3/ippools/p"},
		"the old group found":      {"crd.projectcalico.org,projectcalico.org", "", "/apis /apis/crd.projectcalico.org/v1/ippools/p"},
		"the native group found":   {"projectcalico.org", "", "/apis /apis/projectcalico.org/v3/ippools/p"},
	} {
		var groups []map[string]string
		for group := range strings.SplitSeq(test.groups, ",") {
			groups = append(groups, map[string]string{"name": group})
		}
		list, err := json.Marshal(map[string]any{"groups": groups})
		if err != nil {
			t.Fatal(err)
		}
		server := newAPIServer(t, map[string]string{"/apis": string(list), namespacePath: namespaceJSON})
		conf := parse(t, fmt.Sprintf(`,"datastore_type":"kubernetes","calico_api_group":%q,"kubernetes":{"k8s_api_root":%q},"policy":{"k8s_auth_token":"S3CRET"}`,
			test.group, server.URL))
		connection, err := Open(environment())(deadline(t), conf, "n1")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if asked := server.paths(); asked != "" {
			t.Errorf("%s: opening asked for %s", name, asked)
		}
		if _, err := connection.Store.Read(deadline(t), datastore.Get{Key: model.ResourceKey{Kind: model.KindIPPool, Name: "p"}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if asked := server.paths(); asked != test.want || server.authorization != "Bearer S3CRET" {
			t.Errorf("%s: asked for %s as %q, want %s", name, asked, server.authorization, test.want)
		}
		if connection.API != Reader(connection.Store) || connection.LabelAffinities == nil || connection.Embedded {
			t.Errorf("%s: %+v", name, connection)
		}
		if err := connection.Store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestUnlimit: only the usual limits may be lifted, and a person's command has
// none of them.
func TestUnlimit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		members string
		env     string
		lifted  bool
	}{
		"the usual limits":   {"", "", true},
		"a configured rate":  {`,"qps":7`, "", false},
		"a configured burst": {`,"burst":1`, "", false},
		"of the environment": {"", "K8S_CLIENT_BURST=1", false},
	} {
		server := newAPIServer(t, map[string]string{namespacePath: namespaceJSON})
		conf := parse(t, fmt.Sprintf(`,"datastore_type":"kubernetes","calico_api_group":"x","kubernetes":{"k8s_api_root":%q}`, server.URL)+test.members)
		for _, open := range []Opener{Open(environment(test.env)), Inspect(environment(test.env))} {
			connection, err := open(deadline(t), conf, "n1")
			if err != nil {
				t.Fatal(err)
			}
			if (connection.Unlimit != nil) != test.lifted {
				t.Errorf("%s: may be lifted: %v, want %v", name, connection.Unlimit != nil, test.lifted)
			}
			namespaceOf(t, connection.Store)
			_ = connection.Store.Close()
		}
	}
}

// TestInspectIsUnlimited: more than the usual burst in no time.
func TestInspectIsUnlimited(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t, map[string]string{namespacePath: namespaceJSON})
	conf := parse(t, fmt.Sprintf(`,"datastore_type":"kubernetes","calico_api_group":"x","kubernetes":{"k8s_api_root":%q}`, server.URL))
	connection, err := Inspect(environment())(deadline(t), conf, "n1")
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Store.Close()
	// At the usual rate the last of these would be sent after 40 s.
	for range 300 {
		namespaceOf(t, connection.Store)
	}
}

func TestOpenKubernetesInVain(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "kubeconfig")
	_, err := Open(environment())(deadline(t), parse(t, fmt.Sprintf(`,"datastore_type":"kubernetes","kubernetes":{"kubeconfig":%q}`, missing)), "n1")
	if cnierr.CodeOf(err) != cnierr.DatastoreRefused || !strings.Contains(err.Error(), missing) {
		t.Errorf("no kubeconfig: code %d, %v", cnierr.CodeOf(err), err)
	}
	_, err = Open(environment("FELIX_INTERFACEPREFIX=a/b"))(deadline(t), parse(t, `,"datastore_type":"kubernetes","kubernetes":{"k8s_api_root":"http://127.0.0.1:1"}`), "n1")
	if err == nil || !strings.Contains(err.Error(), "FELIX_INTERFACEPREFIX") {
		t.Errorf("a bad prefix: %v", err)
	}
}

// TestPolicyServer: the policy section may lead elsewhere than the datastore.
func TestPolicyServer(t *testing.T) {
	t.Parallel()
	certificate := filepath.Join(t.TempDir(), "other.crt")
	if err := os.WriteFile(certificate, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := parse(t, fmt.Sprintf(`,"datastore_type":"kubernetes","kubernetes":{"k8s_api_root":"https://127.0.0.1:1"},"policy":{"k8s_client_certificate":%q,"k8s_client_key":%q}`,
		certificate, certificate))
	connection, err := Open(environment())(deadline(t), conf, "n1")
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Store.Close()
	if connection.API == Reader(connection.Store) {
		t.Error("one connection for two kinds of credentials")
	}
	_, err = connection.API.Read(deadline(t), datastore.Get{Key: model.ResourceKey{Kind: model.KindNamespace, Name: "shop"}})
	if cnierr.CodeOf(err) != cnierr.DatastoreRefused || !strings.Contains(err.Error(), certificate) {
		t.Errorf("a certificate that is none: code %d, %v", cnierr.CodeOf(err), err)
	}
}

// TestEmbeddedBesideAPIServer: the server is found when it is first asked.
func TestEmbeddedBesideAPIServer(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t, map[string]string{namespacePath: namespaceJSON})
	conf := parse(t, fmt.Sprintf(`,"datastore_type":"embedded","embedded_file":%q,"kubernetes":{"k8s_api_root":%q}`,
		filepath.Join(t.TempDir(), "datastore.db"), server.URL))
	connection, err := Open(environment())(deadline(t), conf, "n1")
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Store.Close()
	pools := datastore.ListResources{Kind: model.KindIPPool}
	if _, err := connection.Store.Read(deadline(t), pools); err != nil || server.paths() != "" {
		t.Errorf("asked for %s, %v", server.paths(), err)
	}
	if namespace := namespaceOf(t, connection.API); namespace == nil || namespace.Metadata.Labels["team"] != "a" {
		t.Errorf("namespace %+v", namespace)
	}
	if namespace := namespaceOf(t, connection.Store); namespace == nil {
		t.Error("the store does not know the namespace")
	}
	if err := connection.Version(deadline(t)); err == nil || !strings.HasSuffix(server.paths(), " /version") {
		t.Errorf("a server without a version: %v, asked for %s", err, server.paths())
	}
}

func TestNoAPIServer(t *testing.T) {
	t.Parallel()
	conf := parse(t, fmt.Sprintf(`,"embedded_file":%q`, filepath.Join(t.TempDir(), "datastore.db")))
	connection, err := Open(environment())(deadline(t), conf, "n1")
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Store.Close()
	_, err = connection.Store.Read(deadline(t), datastore.Get{Key: model.ResourceKey{Kind: model.KindPod, Namespace: "shop", Name: "web-0"}})
	if cnierr.CodeOf(err) != cnierr.InvalidConfiguration || !strings.Contains(err.Error(), "kubernetes.kubeconfig") {
		t.Errorf("code %d, %v", cnierr.CodeOf(err), err)
	}
}

// unversioned is a store in memory in place of an API server.
type unversioned struct{ *memory.Store }

func (unversioned) Version(context.Context) error { return nil }

// TestJoint: a batch is answered by both stores, in the order of the queries,
// in one round trip of each.
func TestJoint(t *testing.T) {
	t.Parallel()
	local, api := memory.New(memory.Options{}), memory.New(memory.Options{})
	local.Plant("/calico/resources/v3/projectcalico.org/ippools/pods", `{"metadata":{"name":"pods"},"spec":{"cidr":"10.77.0.0/24"}}`)
	api.Plant("/calico/resources/v3/projectcalico.org/namespaces/shop", namespaceJSON)
	api.Plant("/calico/resources/v3/projectcalico.org/pods/shop/web-0", `{"metadata":{"name":"web-0","namespace":"shop"},"spec":{"nodeName":"n1"}}`)
	api.Plant("/calico/resources/v3/projectcalico.org/virtualmachineinstances/shop/vm1", `{"metadata":{"name":"vm1","namespace":"shop"}}`)
	api.Plant("/calico/resources/v3/projectcalico.org/virtualmachines/shop/vm1", `{"metadata":{"name":"vm1","namespace":"shop"}}`)
	store := &joint{Store: local, api: &lazy{open: func(context.Context) (apiServer, error) { return unversioned{api}, nil }}}
	answers, err := store.Read(deadline(t),
		datastore.Get{Key: model.ResourceKey{Kind: model.KindPod, Namespace: "shop", Name: "web-0"}},
		datastore.ListResources{Kind: model.KindIPPool},
		datastore.Get{Key: model.ResourceKey{Kind: model.KindNamespace, Name: "shop"}},
		datastore.Get{Key: model.IPAMConfigKey{}},
		datastore.Get{Key: model.ResourceKey{Kind: model.KindVirtualMachineInstance, Namespace: "shop", Name: "vm1"}},
		datastore.Get{Key: model.ResourceKey{Kind: model.KindVirtualMachine, Namespace: "shop", Name: "vm1"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(answers[4].Entries) != 1 || len(answers[5].Entries) != 1 {
		t.Errorf("answers about a virtual machine: %+v", answers[4:])
	}
	pod, _ := datastore.One[model.Pod](answers[0])
	pool, _ := datastore.One[model.IPPool](answers[1])
	namespace, _ := datastore.One[model.Namespace](answers[2])
	if pod == nil || pod.Node != "n1" || pool == nil || namespace == nil || len(answers[3].Entries) != 0 {
		t.Errorf("answers %+v", answers)
	}
	if local.Rounds() != 1 || api.Rounds() != 1 {
		t.Errorf("%d and %d round trips, want one of each", local.Rounds(), api.Rounds())
	}
	api.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error { return memory.Down(call) }})
	if _, err := store.Read(deadline(t), datastore.Get{Key: model.ResourceKey{Kind: model.KindNamespace, Name: "shop"}}); cnierr.CodeOf(err) != cnierr.TryAgainLater || !errors.Is(err, datastore.ErrUnavailable) {
		t.Errorf("server down: code %d, %v", cnierr.CodeOf(err), err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
