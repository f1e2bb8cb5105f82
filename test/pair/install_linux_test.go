package pair

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"calico-cni/test/etcdtest"
)

// Folders of the host that the installer fills.
const (
	installedConf = "/var/lib/net.d"
	installedBin  = "/var/lib/bin"
)

// installed is an etcd host on which "calico install" has rendered the
// built-in template.
func installed(t *testing.T, env ...string) *host {
	t.Helper()
	h, conf := newEtcdHost(t, etcdtest.Options{}, cluster(pool4))
	where := executables(t)
	for _, name := range []string{"portmap", "loopback"} {
		body, err := os.ReadFile(filepath.Join(where.tools, name))
		if err != nil {
			t.Fatal(err)
		}
		h.write(t, filepath.Join(installedBin, name), string(body))
		if err := os.Chmod(h.file(filepath.Join(installedBin, name)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.write(t, filepath.Join(installedConf, "05-old.conf"), "{}")
	h.write(t, "/var/lib/calico/nodename", "node-1\n")
	endpoints, _ := conf["etcd_endpoints"].(string)
	h.install(t, append([]string{"DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=" + endpoints}, env...)...)
	return h
}

func (h *host) install(t *testing.T, env ...string) {
	t.Helper()
	o := h.run(t, call{
		args: []string{"install", "-from", executables(t).pair, "-bin-dir", installedBin, "-conf-dir", installedConf},
		env: append([]string{"SLEEP=false", "KUBERNETES_NODE_NAME=node-1", "LOG_FILE_PATH=/var/lib/cni.log", "CNI_MTU=1440",
			"CNI_OLD_CONF_NAME=05-old.conf"}, env...),
	})
	if o.status != 0 {
		t.Fatalf("installing: status %d\n%s", o.status, o.stderr)
	}
}

// runtime runs an upstream runtime's tool on what was installed.
func (h *host) runtime(t *testing.T, tool string, args ...string) outcome {
	t.Helper()
	return h.run(t, call{plugin: filepath.Join(executables(t).tools, tool), args: args,
		env: []string{"NETCONFPATH=" + installedConf, "CNI_PATH=" + installedBin}})
}

func (h *host) connects(t *testing.T, o outcome) result {
	t.Helper()
	if o.status != 0 {
		t.Fatalf("status %d\n%s%s", o.status, o.stdout, o.stderr)
	}
	var r result
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatalf("%v\n%s", err, o.stdout)
	}
	if len(r.IPs) != 1 {
		t.Fatalf("the result is %+v", r)
	}
	h.reaches(t, r.addresses()[0])
	return r
}

func TestInstalledConfiguration(t *testing.T) {
	t.Parallel()
	t.Run("Network/71 containerd 1.6 takes it as 1.0.0", func(t *testing.T) {
		t.Parallel()
		h, p := installed(t), newPod(t, "unused", "")
		show := h.runtime(t, "gocni", installedConf, installedBin, "show")
		var loaded struct {
			Networks []struct {
				Config struct{ Name, CNIVersion string }
			}
		}
		if err := json.Unmarshal([]byte(show.stdout), &loaded); err != nil || len(loaded.Networks) != 2 {
			t.Fatalf("%v: %s%s", err, show.stdout, show.stderr)
		}
		if got := loaded.Networks[1].Config; got.Name != "k8s-pod-network" || got.CNIVersion != "1.0.0" {
			t.Errorf("loaded %+v", got)
		}
		added := h.runtime(t, "gocni", installedConf, installedBin, "add", "c1", p.network.Path())
		var results []result
		if err := json.Unmarshal([]byte(added.stdout), &results); err != nil || len(results) != 2 || results[1].CNIVersion != "1.0.0" {
			t.Fatalf("%v: %s%s", err, added.stdout, added.stderr)
		}
		h.reaches(t, results[1].addresses()[0])
		if removed := h.runtime(t, "gocni", installedConf, installedBin, "del", "c1", p.network.Path()); removed.status != 0 {
			t.Fatalf("%s", removed.stderr)
		}
		h.nothingLeft(t)
	})
	t.Run("Network/71 libcni 1.3 executes STATUS and GC under 1.1.0", func(t *testing.T) {
		t.Parallel()
		h, p := installed(t), newPod(t, "unused", "")
		tool := func(verb string, arguments ...string) outcome {
			return h.runtime(t, "cnitool", append([]string{verb, "k8s-pod-network"}, arguments...)...)
		}
		if o := tool("status", p.network.Path()); o.status != 0 {
			t.Fatalf("%s%s", o.stdout, o.stderr)
		}
		if r := h.connects(t, tool("add", p.network.Path())); r.CNIVersion != "1.1.0" || r.Interfaces[1].Mtu != 1440 {
			t.Errorf("the result is %+v", r)
		}
		// cnitool gc takes every attachment that it remembers for stale.
		if o := tool("gc", p.network.Path()); o.status != 0 {
			t.Fatalf("%s%s", o.stdout, o.stderr)
		}
		h.nothingLeft(t)
		if err := os.Remove(h.file("/var/lib/calico/nodename")); err != nil {
			t.Fatal(err)
		}
		if o := tool("status", p.network.Path()); o.status == 0 || !strings.Contains(o.stdout+o.stderr, "nodename") {
			t.Errorf("STATUS was not executed: %s%s", o.stdout, o.stderr)
		}
	})
	t.Run("Network/71 an old portmap: no choice, and the oldest runtime works", func(t *testing.T) {
		t.Parallel()
		h := installed(t)
		h.write(t, filepath.Join(installedBin, "portmap"), "#!/bin/sh\necho '{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"1.0.0\"]}'\n")
		h.install(t, "DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS="+h.etcd.Endpoint)
		text, err := os.ReadFile(h.file(filepath.Join(installedConf, "10-calico.conflist")))
		if err != nil || strings.Contains(string(text), "cniVersions") {
			t.Errorf("%v\n%s", err, text)
		}
		if o := h.runtime(t, "gocni", installedConf, installedBin, "show"); o.status != 0 || !strings.Contains(o.stdout, "k8s-pod-network") {
			t.Errorf("%s%s", o.stdout, o.stderr)
		}
	})
	t.Run("a value that was filled in with a placeholder", func(t *testing.T) {
		t.Parallel()
		h, p := installed(t), newPod(t, "container", "")
		path := h.file(filepath.Join(installedConf, "10-calico.conflist"))
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Plugins []config }
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		before := h.state(t)
		c := list.Plugins[0].with("name", network).with("cniVersion", "1.1.0").with("nodename", "__KUBERNETES_NODE_NAME__")
		h.run(t, p.verb(t, "ADD", c)).fails(t, 7, "nodename")
		h.unchanged(t, before)
	})
}
