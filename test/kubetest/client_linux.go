package kubetest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Client talks to the server as one user.
type Client struct {
	http  *http.Client
	url   string
	token string
}

// Admin may do everything.
func (c *Cluster) Admin() *Client { return c.admin }

// As returns a client that shows a token.
func (c *Cluster) As(t testing.TB, token string) *Client {
	t.Helper()
	client, err := c.login(c.URL, token)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (c *Cluster) login(url, token string) (*Client, error) {
	authority, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	return &Client{http: &http.Client{Transport: transport, Timeout: 30 * time.Second}, url: url, token: token}, nil
}

// AnswerError is an answer that is no success.
type AnswerError struct {
	Status int
	Body   string
}

func (e *AnswerError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.Status, e.Body) }

// Try sends a request with a body in JSON, or none, and returns the answer.
func (c *Client) Try(method, path string, body any) ([]byte, error) {
	var reader io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(encoded)
	}
	request, err := http.NewRequest(method, c.url+path, reader)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = &AnswerError{Status: response.StatusCode, Body: string(answer)}
	}
	return answer, err
}

// Do sends a request that must succeed and returns the object answered.
func (c *Client) Do(t testing.TB, method, path string, body any) map[string]any {
	t.Helper()
	answer, err := c.Try(method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(answer))
	decoder.UseNumber()
	object := map[string]any{}
	if err := decoder.Decode(&object); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return object
}

// AccountToken returns a token of a service account.
func (c *Cluster) AccountToken(t testing.TB, namespace, name string) string {
	t.Helper()
	answer := c.admin.Do(t, "POST", "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+name+"/token", map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{"expirationSeconds": 3600},
	})
	status, _ := answer["status"].(map[string]any)
	token, ok := status["token"].(string)
	if !ok {
		t.Fatalf("no token for %s/%s: %v", namespace, name, answer)
	}
	return token
}

// InlineKubeconfig is the text of a kubeconfig that names no file, and so can be
// taken to a node.
func (c *Cluster) InlineKubeconfig(t testing.TB, token string) string {
	t.Helper()
	authority, err := os.ReadFile(c.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfigText(c.URL, "certificate-authority-data", base64.StdEncoding.EncodeToString(authority), token)
}

// Kubeconfig writes a kubeconfig with a token and returns its path.
func Kubeconfig(t testing.TB, server, caFile, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	WriteKubeconfig(t, path, server, caFile, token)
	return path
}

// WriteKubeconfig writes a kubeconfig with a token.
func WriteKubeconfig(t testing.TB, path, server, caFile, token string) {
	t.Helper()
	if err := SaveKubeconfig(path, server, caFile, token); err != nil {
		t.Fatal(err)
	}
}

// SaveKubeconfig is WriteKubeconfig for those that have no test.
func SaveKubeconfig(path, server, caFile, token string) error {
	return os.WriteFile(path, []byte(kubeconfigText(server, "certificate-authority", caFile, token)), 0o600)
}

func kubeconfigText(server, authorityKey, authority, token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: %q, %s: %q}}]
users: [{name: user, user: {token: %q}}]
contexts: [{name: context, context: {cluster: cluster, user: user}}]
current-context: context
`, server, authorityKey, authority, token)
}
