package pair

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
	"calico-cni/test/pair/gate"
)

// TestStatus walks through the causes of "where we go beyond the reference" 1.
func TestStatus(t *testing.T) {
	t.Parallel()
	t.Run("Network/63 healthy", func(t *testing.T) {
		t.Parallel()
		h, conf := newHost(t), newConfig().with("log_level", "info").with("log_file_path", "/var/lib/cni.log")
		h.status(t, conf)
		if err := os.Remove(h.file("/var/lib/cni.log")); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		healthy := hostVerb(t, "STATUS", conf)
		locks := map[string]int{}
		healthy.decide = func(c gate.Call) unix.Errno {
			if c.Name == "flock" {
				locks[filepath.Base(c.Path)]++
			}
			return 0
		}
		o := h.run(t, healthy).succeeds(t)
		if content, err := os.ReadFile(h.file("/var/lib/cni.log")); err == nil && len(content) > 0 || o.stderr != "" {
			t.Errorf("a healthy STATUS logs:\n%s%s", content, o.stderr)
		}
		if locks["ipam.lock"] != 0 {
			t.Errorf("STATUS takes the IPAM lock")
		}
	})
	t.Run("Network/63 IPAM plugin missing", func(t *testing.T) {
		t.Parallel()
		h, alone := newHost(t), t.TempDir()
		if err := os.Symlink(filepath.Join(executables(t).pair, "calico"), filepath.Join(alone, "calico")); err != nil {
			t.Fatal(err)
		}
		h.run(t, hostVerb(t, "STATUS", newConfig()).with("CNI_PATH="+alone)).fails(t, cnierr.NotAvailable, "calico-ipam", alone)
	})
	t.Run("Network/63 forwarding switched off", func(t *testing.T) {
		t.Parallel()
		h, conf := newHost(t), newConfig()
		h.add(t, newPod(t, "container", ""), conf)
		h.run(t, hostVerb(t, "STATUS", conf)).succeeds(t)
		for sysctl, name := range map[string]string{
			"/proc/sys/net/ipv4/ip_forward": "ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding": "forwarding",
		} {
			h.setSysctl(t, sysctl, "0")
			h.run(t, hostVerb(t, "STATUS", conf)).fails(t, cnierr.LimitedConnectivity, name)
			h.setSysctl(t, sysctl, "1")
		}
	})
	t.Run("Network/63 nftables table gone", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		conf := ipv4Only().with("pools", []any{map[string]any{"cidr": "10.77.0.0/24", "natOutgoing": true}})
		p := newPod(t, "container", "")
		h.add(t, p, conf)
		h.run(t, hostVerb(t, "STATUS", conf)).succeeds(t)
		if h.tables(t) == "" {
			t.Fatal("ADD made no nftables table")
		}
		h.network.Do(t, func() {
			if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
				t.Fatalf("nft flush ruleset: %v: %s", err, out)
			}
		})
		h.run(t, hostVerb(t, "STATUS", conf)).fails(t, cnierr.LimitedConnectivity, "nftables")
		h.add(t, newPod(t, "another", ""), conf)
		h.run(t, hostVerb(t, "STATUS", conf)).succeeds(t)
	})
	t.Run("Network/63 no pool, only after an ADD that failed", func(t *testing.T) {
		t.Parallel()
		h, conf := newHost(t), ipv4Only().with("pools", []any{})
		h.run(t, hostVerb(t, "STATUS", conf)).succeeds(t)
		h.run(t, newPod(t, "container", "").verb(t, "ADD", conf)).fails(t, cnierr.NoPool)
		h.run(t, hostVerb(t, "STATUS", conf)).fails(t, cnierr.NotAvailable, "101")
		h.put(t, poolObject("late", `"cidr":"10.77.0.0/24","blockSize":26`))
		h.run(t, hostVerb(t, "STATUS", conf)).succeeds(t)
	})
	t.Run("Network/63 exhausted, only on demand", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		conf := ipv4Only().with("pools", []any{map[string]any{"cidr": "10.77.0.4/32", "blockSize": 32}})
		h.add(t, newPod(t, "first", ""), conf)
		h.run(t, newPod(t, "second", "").verb(t, "ADD", conf)).fails(t, cnierr.AddressesExhausted)
		h.run(t, hostVerb(t, "STATUS", conf)).succeeds(t)
		h.run(t, hostVerb(t, "STATUS", conf.with("status_reports_exhaustion", true))).fails(t, cnierr.NotAvailable, "10.77.0.4/32")
	})
}

func (h *host) setSysctl(t *testing.T, path, value string) {
	t.Helper()
	h.network.Do(t, func() {
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	})
}
