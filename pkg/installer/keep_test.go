//go:build unix

package installer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"calico-cni/pkg/datastore/kubernetes"
)

// apiServer issues tokens called issued-1, issued-2, ...
type apiServer struct {
	*httptest.Server

	mu sync.Mutex
	// refusal, if any, is the answer to every request.
	refusal  *answer
	requests []asked
	life     time.Duration
	// clock is how far this server's is ahead.
	clock time.Duration
}

type answer struct {
	status int
	body   string
}

type asked struct {
	path, authorization string
	seconds             int
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{life: 24 * time.Hour}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body struct {
		Spec struct {
			Audiences         []string `json:"audiences"`
			ExpirationSeconds int      `json:"expirationSeconds"`
		} `json:"spec"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	s.requests = append(s.requests, asked{r.Method + " " + r.URL.Path, r.Header.Get("Authorization"), body.Spec.ExpirationSeconds})
	if s.refusal != nil {
		w.WriteHeader(s.refusal.status)
		fmt.Fprint(w, s.refusal.body)
		return
	}
	w.WriteHeader(http.StatusCreated)
	now := time.Now().Add(s.clock).UTC()
	fmt.Fprintf(w, `{"metadata":{"creationTimestamp":%q},"status":{"token":"issued-%d","expirationTimestamp":%q}}`,
		now.Format(time.RFC3339), len(s.requests), now.Add(s.life).Format(time.RFC3339))
}

func (s *apiServer) refuse(status int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = &answer{status, body}
}

func (s *apiServer) serve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = nil
}

func (s *apiServer) seen() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]asked(nil), s.requests...)
}

func (s *apiServer) authority() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// newPodNode is a node in whose pod there is a service account.
func newPodNode(t *testing.T, server *apiServer) *node {
	t.Helper()
	n := newNode(t)
	for name, body := range map[string]string{"token": "pod-token-1\n", "ca.crt": server.authority(), "namespace": "kube-system\n"} {
		put(t, filepath.Join(n.layout.AccountDir, name), body, 0o600)
	}
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	n.env["KUBERNETES_SERVICE_HOST"], n.env["KUBERNETES_SERVICE_PORT"] = address.Hostname(), address.Port()
	return n
}

// becomes waits until a file holds a text.
func becomes(t *testing.T, path, part string, n *node) {
	t.Helper()
	var body []byte
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var err error
		if body, err = os.ReadFile(path); err == nil && strings.Contains(string(body), part) {
			return
		}
	}
	t.Fatalf("%s does not hold %q: %s\n%s", path, part, body, n.log)
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	n := newPodNode(t, server)
	n.env["CALICO_CNI_SERVICE_ACCOUNT"] = "plugins"
	put(t, n.layout.kubeconfig(), "old", 0o644)
	n.installs(t)
	want := asked{"POST /api/v1/namespaces/kube-system/serviceaccounts/plugins/token", "Bearer pod-token-1", 24 * 60 * 60}
	if seen := server.seen(); len(seen) != 1 || seen[0] != want {
		t.Errorf("asked %+v", seen)
	}
	if got := mode(t, n.layout.kubeconfig()); got != 0o600 {
		t.Errorf("mode %o", got)
	}
	var parsed struct {
		Current  string `yaml:"current-context"`
		Clusters []struct {
			Name    string
			Cluster map[string]string
		}
		Users []struct {
			Name string
			User map[string]string
		}
		Contexts []struct {
			Name    string
			Context map[string]string
		}
	}
	if err := yaml.Unmarshal([]byte(content(t, n.layout.kubeconfig())), &parsed); err != nil {
		t.Fatal(err)
	}
	if parsed.Current != "calico-context" || parsed.Contexts[0].Name != "calico-context" || parsed.Contexts[0].Context["cluster"] != "local" ||
		parsed.Contexts[0].Context["user"] != "calico" || parsed.Clusters[0].Name != "local" || parsed.Users[0].Name != "calico" ||
		parsed.Clusters[0].Cluster["server"] != server.URL || parsed.Users[0].User["token"] != "issued-1" {
		t.Errorf("%+v", parsed)
	}
	// The plugins' own reader takes it.
	store, err := kubernetes.Open(t.Context(), kubernetes.Options{Kubeconfig: n.layout.kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, _, err := store.RequestToken(t.Context(), "a", "b", time.Hour); err != nil {
		t.Errorf("with the kubeconfig: %v", err)
	}
	if strings.Contains(n.log.String(), "issued-1") || strings.Contains(n.log.String(), "pod-token") {
		t.Errorf("the log holds a token: %s", n.log)
	}
}

func TestKubeconfigWithoutVerification(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	n := newPodNode(t, server)
	n.env["SKIP_TLS_VERIFY"] = "true"
	put(t, filepath.Join(n.layout.AccountDir, "ca.crt"), "none", 0o600)
	n.installs(t)
	text := content(t, n.layout.kubeconfig())
	if !strings.Contains(text, "insecure-skip-tls-verify: true") || strings.Contains(text, "certificate-authority") {
		t.Errorf("%s", text)
	}
}

// TestOtherClock: a node whose clock is wrong neither asks all the time nor too
// late.
func TestOtherClock(t *testing.T) {
	t.Parallel()
	for _, clock := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		server := newAPIServer(t)
		server.clock = clock
		n := newPodNode(t, server)
		in := n.installer(t)
		if err := in.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := in.left().Round(time.Minute); left != 24*time.Hour {
			t.Errorf("the server's clock is %v ahead: %v left", clock, left)
		}
	}
}

func TestServersThatIssueNoToken(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name         string
		status       int
		body, want   string
		falls        bool
		withoutProof bool
	}{
		{"no TokenRequest", 404, `{"reason":"NotFound","message":"the server could not find the requested resource","details":{}}`, "", true, false},
		{"no such account", 404, `{"reason":"NotFound","message":"x","details":{"name":"calico-cni-plugin"}}`, "no service account kube-system/calico-cni-plugin", false, false},
		{"forbidden", 403, `{"reason":"Forbidden","message":"no"}`, "create serviceaccounts/token", false, false},
		{"unauthorized", 401, `{"reason":"Unauthorized","message":"no"}`, "HTTP 401", false, false},
		{"unknown authority", 0, "", "certificate", false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := newAPIServer(t)
			n := newPodNode(t, server)
			if row.withoutProof {
				put(t, filepath.Join(n.layout.AccountDir, "ca.crt"), otherAuthority(t), 0o600)
			} else {
				server.refuse(row.status, row.body)
			}
			err := n.run(t)
			if row.falls {
				if err != nil || !strings.Contains(content(t, n.layout.kubeconfig()), `token: "pod-token-1"`) {
					t.Errorf("%v\n%s", err, n.log)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "pod-token") {
				t.Errorf("%v", err)
			}
			if got := names(t, n.layout.ConfDir); got != "" {
				t.Errorf("the runtime would begin to use: %s", got)
			}
		})
	}
}

// otherAuthority is one that has signed nothing.
func otherAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
}

func TestServerThatComesUpLate(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	server.refuse(http.StatusServiceUnavailable, "starting")
	n := newPodNode(t, server)
	done := make(chan error, 1)
	in := n.installer(t)
	go func() { done <- in.Run(t.Context()) }()
	for deadline := time.Now().Add(20 * time.Second); len(server.seen()) == 0 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	server.serve()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(content(t, n.layout.kubeconfig()), "issued-") || !strings.Contains(n.log.String(), "trying again") {
		t.Errorf("%s", n.log)
	}
}

func TestRefresher(t *testing.T) {
	t.Parallel()
	t.Run("Network/60 renews in time, mode 0600", func(t *testing.T) {
		t.Parallel()
		server := newAPIServer(t)
		n := newPodNode(t, server)
		n.env["CNI_TOKEN_REFRESH_INTERVAL"] = "20ms"
		n.stays(t)
		becomes(t, n.layout.kubeconfig(), `"issued-4"`, n)
		if got := mode(t, n.layout.kubeconfig()); got != 0o600 {
			t.Errorf("mode %o", got)
		}
	})
	t.Run("Network/60 renews when the service account is rotated", func(t *testing.T) {
		t.Parallel()
		server := newAPIServer(t)
		n := newPodNode(t, server)
		account := n.layout.AccountDir
		project(t, account, "..1", "pod-token-1", server.authority())
		n.stays(t)
		becomes(t, n.conf("10-calico.conflist"), "k8s-pod-network", n)
		before := len(server.seen())
		// A change before the folder is watched would go unseen; kubelet's come hours later.
		for i := 2; len(server.seen()) == before; i++ {
			project(t, account, fmt.Sprintf("..%d", i), fmt.Sprintf("pod-token-%d", i), server.authority())
			time.Sleep(4 * quiet)
		}
		becomes(t, n.layout.kubeconfig(), fmt.Sprintf(`"issued-%d"`, before+1), n)
		if got := server.seen()[before].authorization; got == "Bearer pod-token-1" {
			t.Errorf("asked with the token of before the rotation")
		}
		if got := mode(t, n.layout.kubeconfig()); got != 0o600 {
			t.Errorf("mode %o", got)
		}
	})
	t.Run("Network/60 keeps the token while none is to be had", func(t *testing.T) {
		t.Parallel()
		server := newAPIServer(t)
		server.life = time.Second // tried again after 5 s at the latest
		n := newPodNode(t, server)
		n.env["CNI_TOKEN_REFRESH_INTERVAL"] = "20ms"
		n.stays(t)
		becomes(t, n.layout.kubeconfig(), `"issued-2"`, n)
		server.refuse(http.StatusInternalServerError, "no")
		at := len(server.seen())
		for len(server.seen()) == at {
			time.Sleep(5 * time.Millisecond)
		}
		text := content(t, n.layout.kubeconfig())
		server.serve()
		if !strings.Contains(text, `"issued-`) {
			t.Errorf("%s", text)
		}
		becomes(t, n.layout.kubeconfig(), fmt.Sprintf(`"issued-%d"`, len(server.seen())+1), n)
	})
	t.Run("a template that holds the token follows it", func(t *testing.T) {
		t.Parallel()
		server := newAPIServer(t)
		n := newPodNode(t, server)
		n.env["CNI_NETWORK_CONFIG"] = `{"name":"n","cniVersion":"1.0.0","type":"calico","policy":{"k8s_auth_token":"__SERVICEACCOUNT_TOKEN__"},"ipam":{"type":"calico-ipam"}}`
		n.env["CNI_TOKEN_REFRESH_INTERVAL"] = "20ms"
		n.stays(t)
		becomes(t, n.conf("10-calico.conflist"), `"issued-3"`, n)
		if got := mode(t, n.conf("10-calico.conflist")); got != 0o600 {
			t.Errorf("mode %o", got)
		}
	})
	t.Run("TLS files that change are installed again", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		secrets := filepath.Join(n.layout.Root, "calico-secrets")
		put(t, filepath.Join(secrets, "etcd-cert"), "one", 0o600)
		n.stays(t)
		becomes(t, n.conf("10-calico.conflist"), "calico-tls/etcd-cert", n)
		for i := 0; !strings.Contains(n.log.String(), "TLS files have changed"); i++ {
			put(t, filepath.Join(secrets, "etcd-cert"), fmt.Sprintf("two %d", i), 0o600)
			time.Sleep(4 * quiet)
		}
		put(t, filepath.Join(secrets, "etcd-key"), "key", 0o600)
		becomes(t, n.conf("calico-tls/etcd-cert"), "two", n)
		becomes(t, n.conf("10-calico.conflist"), "calico-tls/etcd-key", n)
	})
}

// project replaces the files of a service account as kubelet does: a folder of
// its own for each state, and a link that is renamed.
func project(t *testing.T, directory, state, token, authority string) {
	t.Helper()
	for name, body := range map[string]string{"token": token, "ca.crt": authority, "namespace": "kube-system"} {
		put(t, filepath.Join(directory, state, name), body, 0o600)
		link := filepath.Join(directory, name)
		if _, err := os.Readlink(link); err != nil {
			if err := os.RemoveAll(link); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("..data/"+name, link); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Symlink(state, filepath.Join(directory, "..data_tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(directory, "..data_tmp"), filepath.Join(directory, "..data")); err != nil {
		t.Fatal(err)
	}
}
