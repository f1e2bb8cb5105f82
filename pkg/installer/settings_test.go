package installer

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// variables is an environment.
type variables map[string]string

func (v variables) get(name string) string { return v[name] }

var (
	linuxHost   = Host{GOOS: "linux", Name: "Worker-B\n"}
	windowsHost = Host{GOOS: "windows", Name: "WIN-3", DSR: true}
)

func mustRead(t *testing.T, v variables, host Host) Settings {
	t.Helper()
	s, err := ReadSettings(v.get, host)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSettingsOfAnEmptyEnvironment(t *testing.T) {
	t.Parallel()
	s := mustRead(t, nil, linuxHost)
	if s.ConfName != "10-calico.conflist" || s.OldConfName != s.ConfName || s.ConfMode != 0o600 || s.NetDir != "/etc/cni/net.d" ||
		s.TLSDir != "/calico-secrets" || !s.Update || s.Skip != nil || !s.Sleep || s.Server != "" || s.SkipTLSVerify ||
		s.Account != "calico-cni-plugin" || s.Refresh != 0 || s.Template != "" || s.TemplateFile != "" {
		t.Errorf("%+v", s)
	}
	for name, want := range map[string]string{
		"KUBERNETES_NODE_NAME": "worker-b", "CNI_MTU": "1500", "DATASTORE_TYPE": "kubernetes",
		"CALICO_API_GROUP": "crd.projectcalico.org/v1", "REQUIRE_MTU_FILE": "false", "LOG_FILE_PATH": "/var/log/calico/cni/cni.log",
		"MODE": "vxlan", "VNI": "4096",
	} {
		if got := s.values[name].text; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := mustRead(t, variables{
		"CNI_CONF_NAME": "20-pods.conflist", "TEST_FILE_PERMISSION": "0644", "CNI_NET_DIR": "/etc/cni/multus/net.d/",
		"UPDATE_CNI_BINARIES": "False", "SKIP_CNI_BINARIES": "portmap, tuning,", "SLEEP": "false",
		"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443", "CNI_TOKEN_REFRESH_INTERVAL": "90s",
	}, linuxHost)
	if s.ConfName != "20-pods.conflist" || s.OldConfName != "10-calico.conflist" || s.ConfMode != fs.FileMode(0o644) ||
		s.NetDir != "/etc/cni/multus/net.d" || s.Update || strings.Join(s.Skip, " ") != "portmap tuning" || s.Sleep ||
		s.Server != "https://[fd00::1]:6443" || s.Refresh != 90*time.Second {
		t.Errorf("%+v", s)
	}
}

func TestServerURL(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ protocol, host, port, want string }{
		{"https", "", "443", ""},
		{"https", "10.96.0.1", "443", "https://10.96.0.1:443"},
		{"https", "fd00::1", "443", "https://[fd00::1]:443"},
		{"https", "[fd00::1]", "443", "https://[fd00::1]:443"},
		{"http", "api.example", "", "http://api.example"},
		{"https", "fd00::1", "", "https://[fd00::1]"},
	} {
		if got := serverURL(row.protocol, row.host, row.port); got != row.want {
			t.Errorf("%v: %q", row, got)
		}
	}
}

// TestMistakes: each is named with its variable, and all of them at once.
func TestMistakes(t *testing.T) {
	t.Parallel()
	wrong := variables{
		"CNI_CONF_NAME": "../10.conf", "CNI_OLD_CONF_NAME": `a\b`, "TEST_FILE_PERMISSION": "rw", "UPDATE_CNI_BINARIES": "maybe",
		"SLEEP": "8", "KUBERNETES_SERVICE_PROTOCOL": "ftp", "CNI_TOKEN_REFRESH_INTERVAL": "0s", "CNI_MTU": "jumbo",
		"LOG_FILE_MAX_SIZE": "-1", "DATASTORE_TYPE": "mysql", "REQUIRE_MTU_FILE": "1.0", "CALICO_NETWORKING_BACKEND": "ipip",
		"VXLAN_VNI": "7", "KUBERNETES_SERVICE_CIDRS": "10.96.0.0/33", "KUBERNETES_DNS_SERVERS": "dns",
	}
	_, err := ReadSettings(wrong.get, windowsHost)
	if err == nil {
		t.Fatal("accepted")
	}
	for name := range wrong {
		if !strings.Contains(err.Error(), "environment variable "+name+": ") {
			t.Errorf("%s is not named:\n%v", name, err)
		}
	}
	for _, mode := range []string{"0", "0200", "1777", "-600", "9"} {
		if _, err := ReadSettings(variables{"TEST_FILE_PERMISSION": mode}.get, linuxHost); err == nil {
			t.Errorf("file mode %s was accepted", mode)
		}
	}
}

// TestWindowsSettingsOnLinux: a variable meant for other nodes harms no one.
func TestWindowsSettingsOnLinux(t *testing.T) {
	t.Parallel()
	mustRead(t, variables{"VXLAN_VNI": "7", "KUBERNETES_SERVICE_CIDRS": "all", "CNI_IPAM_TYPE": "host-local"}, linuxHost)
}

func TestWindowsIPAM(t *testing.T) {
	t.Parallel()
	if _, err := ReadSettings(variables{"CNI_IPAM_TYPE": "host-local"}.get, windowsHost); err == nil || !strings.Contains(err.Error(), "CNI_IPAM_TYPE") {
		t.Errorf("host-local with vxlan: %v", err)
	}
	for backend, mode := range map[string]string{"bird": "windows-bgp", "bgp": "windows-bgp", "windows-bgp": "windows-bgp", "none": ""} {
		s := mustRead(t, variables{"CNI_IPAM_TYPE": "host-local", "CALICO_NETWORKING_BACKEND": backend}, windowsHost)
		if s.values["MODE"].text != mode || s.values["IPAM_TYPE"].text != "host-local" {
			t.Errorf("backend %s: %+v", backend, s.values)
		}
	}
}

func TestLocate(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		arguments Arguments
		root      string
		want      []string
	}{
		{"container", Arguments{}, "", []string{"/opt/cni/bin", "/host/opt/cni/bin", "/host/secondary-bin-dir", "/host/etc/cni/net.d", "/var/run/secrets/kubernetes.io/serviceaccount"}},
		{"process container", Arguments{}, "/hpc", []string{"/hpc/opt/cni/bin", "/hpc/host/opt/cni/bin", "/hpc/host/secondary-bin-dir", "/hpc/host/etc/cni/net.d", "/hpc/var/run/secrets/kubernetes.io/serviceaccount"}},
		{"node without containers", Arguments{From: ".", BinDirs: []string{`C:\k\cni`}, ConfDir: `C:\k\cni\config`}, "", []string{".", `C:\k\cni`, `C:\k\cni\config`, "/var/run/secrets/kubernetes.io/serviceaccount"}},
	} {
		l := Locate(row.arguments, row.root)
		got := append(append([]string{l.From}, l.BinDirs...), l.ConfDir, l.AccountDir)
		if filepath.ToSlash(strings.Join(got, " ")) != filepath.ToSlash(strings.Join(row.want, " ")) {
			t.Errorf("%s: %q", row.name, got)
		}
	}
	l := Locate(Arguments{}, "/hpc")
	if filepath.ToSlash(l.within("/calico-secrets")) != "/hpc/calico-secrets" || l.within("c:/secrets") != "c:/secrets" {
		t.Error("a path of the environment is not looked for where the container has it")
	}
}

// TestNetDir: paths in the configuration are the host's.
func TestNetDir(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		variable, flag, want string
	}{
		{"", "", "c:/etc/cni/net.d/calico-kubeconfig"},
		{"/k/cni/config/", "", "c:/k/cni/config/calico-kubeconfig"},
		{"d:/cni", "", "d:/cni/calico-kubeconfig"},
		{"", `C:\k\cni\config`, `C:\k\cni\config\calico-kubeconfig`},
		{"", `C:\Program Files\containerd\cni\conf`, `C:\Program Files\containerd\cni\conf\calico-kubeconfig`},
		{"e:/cni", `C:\k`, "e:/cni/calico-kubeconfig"},
	} {
		host := windowsHost
		host.NetDir = row.flag
		s := mustRead(t, variables{"CNI_NET_DIR": row.variable}, host)
		if got := s.onHost(kubeconfigName); got != row.want {
			t.Errorf("%+v: %s", row, got)
		}
	}
}

func TestDSR(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		build, revision uint64
		want            bool
	}{
		{17134, 9999, false}, {17763, 1431, false}, {17763, 1432, true}, {17764, 2000, false}, {18316, 0, false},
		{18317, 0, true}, {20348, 0, true}, {26100, 0, true},
	} {
		if got := supportsDSR(row.build, row.revision); got != row.want {
			t.Errorf("build %d.%d: %v", row.build, row.revision, got)
		}
	}
}

func TestRenewal(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		left   time.Duration
		chance float64
		want   time.Duration
	}{
		{24 * time.Hour, 0, 6 * time.Hour},
		{24 * time.Hour, 0.5, 9 * time.Hour},
		{24 * time.Hour, 0.9999999, 12 * time.Hour},
		{time.Hour, 0, 15 * time.Minute},
		{12 * time.Second, 0.99, 5970 * time.Millisecond},
		{12 * time.Second, 0, 5 * time.Second},
		{0, 1, 5 * time.Second},
		{-time.Hour, 1, 5 * time.Second},
	} {
		if got := renewal(row.left, row.chance); got.Round(10*time.Millisecond) != row.want {
			t.Errorf("%v left, chance %v: %v, want %v", row.left, row.chance, got, row.want)
		}
	}
	if got := retry(24*time.Hour, 0); got != time.Minute {
		t.Errorf("after a failure: %v", got)
	}
	if got := retry(-time.Hour, 0); got != 5*time.Second {
		t.Errorf("after a failure, the token having ended: %v", got)
	}
}
