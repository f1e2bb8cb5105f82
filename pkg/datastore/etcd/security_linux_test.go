package etcd

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/test/etcdtest"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Options{TLS: true})
	other := etcdtest.Start(t, etcdtest.Options{TLS: true})
	plainURL := "http" + server.Endpoint[len("https"):]
	for name, row := range map[string]struct {
		options Options
		reason  datastore.Reason
		text    string // empty: it works
	}{
		"right": {options: Options{
			Endpoints: []string{server.Endpoint}, CAFile: server.CAFile, CertFile: server.CertFile, KeyFile: server.KeyFile,
		}},
		"without scheme": {options: Options{
			Endpoints: []string{server.Endpoint[len("https://"):]}, CAFile: server.CAFile, CertFile: server.CertFile, KeyFile: server.KeyFile,
		}},
		"no client certificate": {
			options: Options{Endpoints: []string{server.Endpoint}, CAFile: server.CAFile},
			reason:  datastore.Refused, text: "certificate",
		},
		"client certificate of another authority": {
			options: Options{Endpoints: []string{server.Endpoint}, CAFile: server.CAFile, CertFile: other.CertFile, KeyFile: other.KeyFile},
			reason:  datastore.Refused, text: "certificate",
		},
		"server of another authority": {
			options: Options{Endpoints: []string{server.Endpoint}, CAFile: other.CAFile, CertFile: server.CertFile, KeyFile: server.KeyFile},
			reason:  datastore.Refused, text: "x509: ",
		},
		"plain client": {
			options: Options{Endpoints: []string{plainURL}},
			reason:  datastore.Unreachable, text: "https://",
		},
		"plain server": {
			options: Options{Endpoints: []string{"https" + shared.Endpoint[len("http"):]}},
			reason:  datastore.Unreachable, text: "http://",
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := openStore(t, row.options)
			if row.text == "" {
				mustRead(t, store)
				if ends := store.CertificateEnds(); !ends.After(time.Now()) {
					t.Errorf("the client's certificate ends at %v", ends)
				}
				return
			}
			takes(t, prompt, func() {
				_, err := store.Read(within(t, time.Minute), getHandle)
				demand(t, err, row.reason, row.text)
				_, err = store.Write(within(t, time.Minute), putHandle)
				demand(t, err, row.reason, row.text)
			})
		})
	}
}

func TestBadCertificateFiles(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Options{TLS: true})
	missing := filepath.Join(t.TempDir(), "missing.pem")
	garbage := filepath.Join(t.TempDir(), "garbage.pem")
	if err := os.WriteFile(garbage, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		options Options
		texts   []string
	}{
		"no CA file":            {Options{CAFile: missing}, []string{"etcd_ca_cert_file", missing, "no such file"}},
		"CA file without PEM":   {Options{CAFile: garbage}, []string{"etcd_ca_cert_file", garbage}},
		"no certificate file":   {Options{CertFile: missing, KeyFile: server.KeyFile}, []string{"etcd_cert_file", missing}},
		"no key file":           {Options{CertFile: server.CertFile, KeyFile: missing}, []string{"etcd_key_file", missing}},
		"certificate only":      {Options{CertFile: server.CertFile}, []string{"etcd_key_file", "etcd_cert_file"}},
		"key of something else": {Options{CertFile: server.CAFile, KeyFile: server.KeyFile}, []string{"etcd_key_file", "match"}},
		"certificate not PEM":   {Options{CertFile: garbage, KeyFile: server.KeyFile}, []string{"etcd_cert_file", garbage}},
	} {
		t.Run(name, func(t *testing.T) {
			row.options.Endpoints = []string{server.Endpoint}
			_, err := Open(within(t, time.Minute), row.options)
			demand(t, err, datastore.Refused, row.texts...)
		})
	}
}

// TestUsers has a server that knows users. Without a password, with a wrong
// one, and without permission, both verbs are refused.
func TestUsers(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Options{})
	enableUsers(t, server)
	for name, row := range map[string]struct {
		username, password string
		text               string // empty: it works
	}{
		"right":          {"cni", "right", ""},
		"wrong password": {"cni", "wrong", "invalid user ID or password"},
		"no password":    {"", "", "user name is empty"},
		"no permission":  {"guest", "right", "permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			store := openStore(t, Options{Endpoints: []string{server.Endpoint}, Username: row.username, Password: row.password})
			_, readErr := store.Read(within(t, time.Minute), getHandle)
			_, writeErr := store.Write(within(t, time.Minute), putHandle)
			for _, err := range []error{readErr, writeErr} {
				if row.text != "" {
					demand(t, err, datastore.Refused, row.text, server.Endpoint)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Run("forgotten token", func(t *testing.T) { forgottenToken(t, server) })
}

// forgottenToken has a server that does not know the token any more: the
// client logs in again.
func forgottenToken(t *testing.T, server *etcdtest.Server) {
	store := openStore(t, Options{Endpoints: []string{server.Endpoint}, Username: "cni", Password: "right"})
	mustRead(t, store)
	store.login.token = "forgotten.1"
	mustRead(t, store)
	store.login.token = "forgotten.2"
	key := model.HandleKey{ID: "net.again"}
	if _, err := store.Write(within(t, time.Minute), datastore.Step{datastore.Put(key, &model.Handle{}, datastore.Absent)}); err != nil {
		t.Error(err)
	}
}

func TestLoginWhereNoneIsNeeded(t *testing.T) {
	mustRead(t, openStore(t, Options{Endpoints: []string{shared.Endpoint}, Username: "cni", Password: "any"}))
}

func enableUsers(t *testing.T, server *etcdtest.Server) {
	t.Helper()
	client, ctx := server.Client(t), within(t, time.Minute)
	for _, err := range []error{
		second(client.RoleAdd(ctx, "calico")),
		second(client.RoleGrantPermission(ctx, "calico", "/calico/", clientv3.GetPrefixRangeEnd("/calico/"), clientv3.PermissionType(clientv3.PermReadWrite))),
		second(client.UserAdd(ctx, "root", "right")),
		second(client.UserGrantRole(ctx, "root", "root")),
		second(client.UserAdd(ctx, "cni", "right")),
		second(client.UserGrantRole(ctx, "cni", "calico")),
		second(client.UserAdd(ctx, "guest", "right")),
		second(client.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
