package kubernetes

import (
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// token is a JSON web token that ends then.
func token(ends time.Time) string {
	payload := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d,"sub":"x"}`, ends.Unix()))
	return "secret-header." + payload + ".secret-signature"
}

func (s *server) kubeconfig(text string) string {
	s.Helper()
	path := filepath.Join(s.TempDir(), "kubeconfig")
	s.write(path, text)
	return path
}

// config is a kubeconfig with these members of the cluster and of the user.
func config(cluster, user string) string {
	return fmt.Sprintf("clusters: [{name: c, cluster: {%s}}]\nusers: [{name: u, user: {%s}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", cluster, user)
}

// TestRenewal: the credentials are replaced while a verb runs.
func TestRenewal(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret-2" {
			refuse(w, 401, "Unauthorized", "Unauthorized", nil)
			return
		}
		handle(w, key.ID, "2")
	})
	for name, write := range map[string]func(path, token string){
		"kubeconfig": func(path, token string) {
			s.write(path, config(fmt.Sprintf("server: %q, certificate-authority: %q", s.URL, s.caFile), "token: "+token))
		},
		"token file": func(path, token string) {
			s.write(path+".token", token+"\n")
			s.write(path, config(fmt.Sprintf("server: %q, certificate-authority: %q", s.URL, s.caFile), "tokenFile: kubeconfig.token"))
		},
	} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		write(path, "secret-1")
		store := s.open(func(o *Options) { *o = Options{Kubeconfig: path, Group: o.Group} })
		write(path, "secret-2")
		queries := make([]datastore.Query, 8)
		for i := range queries {
			queries[i] = datastore.Get{Key: key}
		}
		if _, err := store.Read(s.ctx(), queries...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRefusedCredentials: the error tells file, age and end, never the token.
func TestRefusedCredentials(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { refuse(w, 401, "Unauthorized", "Unauthorized", nil) })
	path := s.kubeconfig(config(fmt.Sprintf("server: %q, certificate-authority: %q", s.URL, s.caFile), "token: "+token(time.Now().Add(-time.Hour))))
	hourOld := time.Now().Add(-90 * time.Minute)
	if err := os.Chtimes(path, hourOld, hourOld); err != nil {
		t.Fatal(err)
	}
	store := s.open(func(o *Options) { *o = Options{Kubeconfig: path, Group: o.Group} })
	_, err := store.Read(s.ctx(), datastore.Get{Key: key})
	if !errors.Is(err, datastore.ErrUnavailable) || datastore.ReasonOf(err) != datastore.Refused {
		t.Fatalf("failed with %v", err)
	}
	for _, part := range []string{path, "1h30m", "which ended at"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "secret") || s.count() != 2 {
		t.Errorf("%d requests, %v", s.count(), err)
	}
	if file, ends := store.Credentials(); file != path || time.Since(ends).Round(time.Minute) != time.Hour {
		t.Errorf("credentials of %s end at %v", file, ends)
	}
}

// TestUnusableCredentials are found before anything is sent.
func TestUnusableCredentials(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { handle(w, key.ID, "2") })
	directory := t.TempDir()
	missing, empty := filepath.Join(directory, "missing"), filepath.Join(directory, "empty")
	s.write(empty, "")
	cluster := fmt.Sprintf("server: %q", s.URL)
	for name, row := range map[string]struct{ text, want string }{
		"half written":     {"clusters: [{name: c, cluster: {server: https://h\nusers: [{name: u, user: {token: secret", "does not parse"},
		"cut at a line":    {"clusters:\n- name: c\n", "no current-context"},
		"empty":            {"", "no current-context"},
		"no context":       {"current-context: x\n", `no context "x"`},
		"no cluster":       {"current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n", `no server for cluster "c"`},
		"no user":          {"current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: https://h}}]\n", `no user "u"`},
		"no authority":     {config(cluster+", certificate-authority: "+missing, "token: secret"), missing},
		"odd authority":    {config(cluster+", certificate-authority: "+empty, "token: secret"), empty},
		"odd data":         {config(cluster+", certificate-authority-data: '%secret'", "token: secret"), "base64"},
		"no token file":    {config(cluster, "tokenFile: "+missing), missing},
		"empty token file": {config(cluster, "tokenFile: "+empty), empty},
		"no certificate":   {config(cluster, "client-certificate: "+missing), missing},
		"empty pair":       {config(cluster, "client-certificate: "+empty+", client-key: "+empty), empty},
		"no key":           {config(cluster, "client-certificate: "+s.caFile), "client-key"},
		"odd authority, inline": {
			config(cluster+", certificate-authority-data: "+base64.StdEncoding.EncodeToString([]byte("secret")), "token: secret"),
			"certificate authority",
		},
		"user twice":         {config(cluster, "token: secret-1}}, {name: u, user: {token: secret-2"), "does not parse"},
		"two ways to log in": {config(cluster, "token: secret, username: u, password: secret"), "more than one authentication method"},
		"odd proxy":          {config(cluster+", proxy-url: 'ftp://user:secret@192.0.2.1'", "token: secret"), "proxy-url"},
		"odd proxy address":  {config(cluster+", proxy-url: 'http://user:secret@:%zz'", "token: secret"), "proxy-url"},
		"later version":      {"apiVersion: v2\nkind: Config\n", "not a kubeconfig"},
		"odd certificate":    {config(cluster, "client-certificate: "+s.caFile+", client-key: "+empty), s.caFile},
		"program":            {config(cluster, "exec: {command: secret}"), "from a program"},
		"odd server":         {config("server: 'https://user:secret@:%zz'", "token: secret"), "not a URL"},
	} {
		path := s.kubeconfig(row.text)
		_, err := Open(s.ctx(), Options{Kubeconfig: path})
		if !errors.Is(err, datastore.ErrUnavailable) || datastore.ReasonOf(err) != datastore.Refused || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q in it", name, err, row.want)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells a secret: %v", name, err)
		}
	}
	if s.count() != 0 {
		t.Errorf("%d requests were sent", s.count())
	}
}

// TestWaysToLogIn all lead to the server, with the same token.
func TestWaysToLogIn(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret-1" {
			refuse(w, 401, "Unauthorized", "Unauthorized", nil)
			return
		}
		handle(w, key.ID, "2")
	})
	authority, err := os.ReadFile(s.caFile)
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "https://"), ":")
	account := t.TempDir()
	s.write(filepath.Join(account, "token"), "secret-1\n")
	s.write(filepath.Join(account, "ca.crt"), string(authority))
	inline := config(fmt.Sprintf("server: %q, certificate-authority-data: %s", s.URL, base64.StdEncoding.EncodeToString(authority)), "token: secret-1")
	wrong := config(`server: "https://192.0.2.1:1"`, "token: secret-0")
	for name, options := range map[string]Options{
		"inline":    {Kubeconfig: s.kubeconfig(inline)},
		"brackets":  {Kubeconfig: s.kubeconfig(strings.Replace(inline, host, "["+host+"]", 1))},
		"no scheme": {Kubeconfig: s.kubeconfig(strings.Replace(inline, "https://", "", 1))},
		"path":      {Kubeconfig: s.kubeconfig(strings.Replace(inline, port, port+"/k8s/cluster/", 1))},
		"not verified, with authority": {Kubeconfig: s.kubeconfig(config(
			fmt.Sprintf("server: %q, insecure-skip-tls-verify: true, certificate-authority: %q", s.URL, s.caFile), "token: secret-1"))},
		"told not to verify":  {Kubeconfig: s.kubeconfig(config(fmt.Sprintf("server: %q", s.URL), "token: secret-1")), InsecureSkipTLSVerify: true},
		"inline wins":         {Kubeconfig: s.kubeconfig(strings.Replace(inline, "server:", "certificate-authority: missing, server:", 1))},
		"token file wins":     {Kubeconfig: s.kubeconfig(strings.Replace(inline, "token: secret-1", fmt.Sprintf("token: secret-0, tokenFile: %q", filepath.Join(account, "token")), 1))},
		"token, not its file": {Kubeconfig: s.kubeconfig(strings.Replace(inline, "token: secret-1", fmt.Sprintf("tokenFile: %q", filepath.Join(account, "missing")), 1)), Token: "secret-1"},
		"another context":     {Kubeconfig: s.kubeconfig(strings.Replace(inline, "current-context: x", "current-context: z", 1)), Context: "x"},
		"split":               {Kubeconfig: s.kubeconfig("contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n") + string(filepath.ListSeparator) + s.kubeconfig(inline)},
		"not verified":        {Kubeconfig: s.kubeconfig(config(fmt.Sprintf("server: %q, insecure-skip-tls-verify: true", s.URL), "token: secret-1"))},
		"list":                {Kubeconfig: "missing" + string(filepath.ListSeparator) + s.kubeconfig(inline) + string(filepath.ListSeparator) + s.kubeconfig(wrong)},
		"overridden":          {Kubeconfig: s.kubeconfig(wrong), Server: s.URL, Token: "secret-1", CAFile: s.caFile},
		"explicit":            {Server: s.URL, Token: "secret-1", CAFile: s.caFile},
		"service account":     {ServiceAccountDir: account, ServiceHost: host, ServicePort: port},
		"account, explicit":   {ServiceAccountDir: account, Server: s.URL},
	} {
		options.Group = "crd.projectcalico.org/v1"
		store, err := Open(s.ctx(), options)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := store.Read(s.ctx(), datastore.Get{Key: key}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = store.Close()
	}
}

// TestHeaders: who asks, in whose name, and by which program.
func TestHeaders(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { handle(w, key.ID, "2") })
	inline := config(fmt.Sprintf("server: %q, certificate-authority: %q", s.URL, s.caFile), "username: plugin, password: secret, as: other")
	store := s.open(func(o *Options) { *o = Options{Kubeconfig: s.kubeconfig(inline), Group: o.Group} })
	if _, err := store.Read(s.ctx(), datastore.Get{Key: key}); err != nil {
		t.Fatal(err)
	}
	request := s.requests[0]
	user, password, _ := request.BasicAuth()
	if agent := request.UserAgent(); agent != "calico-cni" || user != "plugin" || password != "secret" {
		t.Errorf("user %q, password %q, agent %q", user, password, agent)
	}
	if other, encoding := request.Header.Get("Impersonate-User"), request.Header.Get("Accept-Encoding"); other != "other" || encoding != "" {
		t.Errorf("in the name of %q, encoding %q", other, encoding)
	}
}

// TestQuiet: client-go has a log of its own, which must stay empty: standard
// error is the runtime's log.
func TestQuiet(t *testing.T) {
	t.Parallel()
	run := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^Test(UnusableCredentials|RefusedCredentials|Renewal|WaysToLogIn)$")
	var complaints strings.Builder
	run.Stderr = &complaints
	if out, err := run.Output(); err != nil || !strings.Contains(string(out), "PASS") || complaints.Len() > 0 {
		t.Errorf("%v, on standard error %q, on standard output %q", err, complaints.String(), out)
	}
	for _, name := range []string{"v", "logtostderr", "kubeconfig"} {
		if flag.CommandLine.Lookup(name) != nil {
			t.Errorf("the process has got a flag -%s", name)
		}
	}
}

// TestPlainServer: a proxy beside the plugin may take the requests without TLS.
func TestPlainServer(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret-1" {
			refuse(w, 401, "Unauthorized", "Unauthorized", nil)
			return
		}
		handle(w, key.ID, "2")
	}))
	defer plain.Close()
	store := s.open(func(o *Options) { o.Server, o.CAFile = plain.URL, "" })
	queries := make([]datastore.Query, 20)
	for i := range queries {
		queries[i] = datastore.Get{Key: key}
	}
	if _, err := store.Read(s.ctx(), queries...); err != nil {
		t.Error(err)
	}
	if written, err := store.Write(s.ctx(), datastore.Step{datastore.Put(key, &model.Handle{}, "1@u1")}); err != nil || len(written) != 1 {
		t.Error(err)
	}
	plain.Close()
	// The client may not have noticed yet that its connection is closed. A
	// failed read tells it, so that the write has nothing to leave on.
	if _, err := store.Read(s.ctx(), queries[0]); datastore.ReasonOf(err) != datastore.Unreachable {
		t.Errorf("a read of a server that is gone: %v", err)
	}
	_, err := store.Write(s.ctx(), datastore.Step{datastore.Put(key, &model.Handle{}, "1@u1")})
	if datastore.ReasonOf(err) != datastore.Unreachable {
		t.Errorf("a write that never left: %v", err)
	}
}

func TestUnknownAuthority(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { handle(w, key.ID, "2") })
	_, err := s.open(func(o *Options) { o.CAFile = "" }).Read(s.ctx(), datastore.Get{Key: key})
	if !errors.Is(err, datastore.ErrUnavailable) || datastore.ReasonOf(err) != datastore.Refused || !strings.Contains(err.Error(), "x509") {
		t.Errorf("failed with %v", err)
	}
}
