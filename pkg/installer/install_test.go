//go:build unix

package installer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfiguration(t *testing.T) {
	t.Parallel()
	const template = `{"name":"n","cniVersion":"1.0.0","type":"calico","mtu":__CNI_MTU__,"ipam":{"type":"calico-ipam"}}`
	t.Run("Network/57 mode 0600, also of a file that is there", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		put(t, n.conf("10-calico.conflist"), "old", 0o644)
		n.installs(t)
		if got := mode(t, n.conf("10-calico.conflist")); got != 0o600 {
			t.Errorf("mode %o", got)
		}
		// Now it holds what it shall already.
		if err := os.Chmod(n.conf("10-calico.conflist"), 0o666); err != nil {
			t.Fatal(err)
		}
		n.env["TEST_FILE_PERMISSION"] = "640"
		n.installs(t)
		if got := mode(t, n.conf("10-calico.conflist")); got != 0o640 {
			t.Errorf("mode %o, want 640", got)
		}
	})
	t.Run("Network/57 invalid JSON is fatal and nothing is touched", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		put(t, n.conf("calico-tls/etcd-ca"), "old", 0o600)
		put(t, n.conf("10-calico.conflist"), "old", 0o600)
		n.env["CNI_NETWORK_CONFIG"] = `{"name":"n",,"password":"hush"}`
		err := n.run(t)
		if err == nil || strings.Contains(err.Error()+n.log.String(), "hush") || !strings.Contains(err.Error(), "not JSON") {
			t.Errorf("%v\n%s", err, n.log)
		}
		if content(t, n.conf("calico-tls/etcd-ca"))+content(t, n.conf("10-calico.conflist")) != "oldold" || names(t, n.layout.BinDirs[0]) != "" {
			t.Error("something was changed")
		}
	})
	t.Run("Network/57 CNI_NETWORK_CONFIG_FILE wins", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		put(t, filepath.Join(n.layout.Root, "etc/template"), template, 0o644)
		n.env["CNI_NETWORK_CONFIG_FILE"], n.env["CNI_NETWORK_CONFIG"] = "/etc/template", "{"
		n.installs(t)
		if got, want := content(t, n.conf("10-calico.conflist")), strings.Replace(template, "__CNI_MTU__", "1500", 1)+"\n"; got != want {
			t.Errorf("%s", got)
		}
	})
	t.Run("template file that is missing", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.env["CNI_NETWORK_CONFIG_FILE"] = "/etc/absent"
		if err := n.run(t); err == nil || !strings.Contains(err.Error(), "CNI_NETWORK_CONFIG_FILE") {
			t.Errorf("%v", err)
		}
	})
	t.Run("Network/59 old configuration removed when the name changes", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.installs(t)
		n.env["CNI_CONF_NAME"] = "05-pods.conflist"
		put(t, n.conf("10-calico.conflist.tmp"), "half", 0o600)
		n.installs(t)
		if got := names(t, n.layout.ConfDir); got != "05-pods.conflist" {
			t.Errorf("the folder holds %s", got)
		}
		n.env["CNI_CONF_NAME"], n.env["CNI_OLD_CONF_NAME"] = "01-pods.conflist", "05-pods.conflist"
		n.installs(t)
		if got := names(t, n.layout.ConfDir); got != "01-pods.conflist" {
			t.Errorf("the folder holds %s", got)
		}
	})
	t.Run("folder that is not mounted", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		if err := os.Remove(n.layout.ConfDir); err != nil {
			t.Fatal(err)
		}
		if err := n.run(t); err == nil || !strings.Contains(err.Error(), "mount the host's /etc/cni/net.d") || names(t, n.layout.BinDirs[0]) != "" {
			t.Errorf("%v", err)
		}
	})
}

func TestVersionsOfPlugins(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, portmap string
		keeps         bool
		warning       string
	}{
		{"all new", newPlugin, true, ""},
		{"an old portmap", oldPlugin, false, "plugin portmap does not know version 1.1.0"},
		{"a portmap that fails", "#!/bin/sh\nexit 1\n", false, "plugin portmap did not say"},
		{"a portmap that cannot be executed", "nothing", false, "plugin portmap did not say"},
		{"no portmap", "", false, "plugin portmap did not say"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			put(t, filepath.Join(n.layout.From, "portmap"), row.portmap, 0o755)
			if row.portmap == "" {
				n.env["SKIP_CNI_BINARIES"] = "portmap"
			}
			n.installs(t)
			text := content(t, n.conf("10-calico.conflist"))
			if strings.Contains(text, "cniVersions") != row.keeps || !strings.Contains(n.log.String(), row.warning) {
				t.Errorf("%s\n%s", text, n.log)
			}
			if row.keeps && strings.Contains(n.log.String(), "WARN") && !strings.Contains(n.log.String(), "no service account") {
				t.Errorf("a warning: %s", n.log)
			}
			if _, err := inspect([]byte(text)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTLSAssets(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	secrets := filepath.Join(n.layout.Root, "calico-secrets")
	put(t, filepath.Join(secrets, "etcd-ca"), "authority", 0o644)
	put(t, filepath.Join(secrets, "etcd-cert"), "certificate", 0o644)
	put(t, n.conf("calico-tls/etcd-key"), "of another authority", 0o600)
	put(t, n.conf("calico-tls/etcd-ca.tmp"), "half", 0o600)
	n.env["DATASTORE_TYPE"], n.env["ETCD_ENDPOINTS"] = "etcdv3", "https://192.0.2.1:2379"
	n.installs(t)
	if got := names(t, n.conf("calico-tls")); got != "etcd-ca etcd-cert" {
		t.Errorf("installed: %s", got)
	}
	if content(t, n.conf("calico-tls/etcd-cert")) != "certificate" || mode(t, n.conf("calico-tls/etcd-cert")) != 0o600 || mode(t, n.conf("calico-tls")) != 0o700 {
		t.Error("not what was given, or not for root only")
	}
	text := content(t, n.conf("10-calico.conflist"))
	for _, part := range []string{`"etcd_ca_cert_file": "/etc/cni/net.d/calico-tls/etcd-ca"`, `"etcd_key_file": ""`} {
		if !strings.Contains(text, part) {
			t.Errorf("no %s in\n%s", part, text)
		}
	}
	if err := os.RemoveAll(secrets); err != nil {
		t.Fatal(err)
	}
	n.installs(t)
	if got := names(t, n.layout.ConfDir); got != "10-calico.conflist" {
		t.Errorf("after the secrets are gone the folder holds %s", got)
	}
}

func TestPodWithoutServer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	put(t, n.layout.tokenFile(), "token", 0o600)
	if err := n.run(t); err == nil || !strings.Contains(err.Error(), "KUBERNETES_SERVICE_HOST") || names(t, n.layout.BinDirs[0]) != "" {
		t.Errorf("%v", err)
	}
}

func TestOutsideOfAPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.installs(t)
	if !strings.Contains(n.log.String(), "put one where the configuration names it") {
		t.Errorf("%s", n.log)
	}
	if got := names(t, n.layout.ConfDir); got != "10-calico.conflist" {
		t.Errorf("the folder holds %s", got)
	}
}
