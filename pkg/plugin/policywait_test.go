package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/invocation"
)

func TestPolicyWait(t *testing.T) {
	t.Parallel()
	const warning = "the policy agent has not said"
	t.Run("Network/51 until the agent's file is there", func(t *testing.T) {
		t.Parallel()
		n := podNode(t, nil, nil)
		written := make(chan error, 1)
		n.dataplane.during = func() {
			time.AfterFunc(100*time.Millisecond, func() {
				written <- os.WriteFile(filepath.Join(n.dir, "k8s shop%2Fweb-0 eth0"), nil, 0o644)
			})
		}
		n.mustAddPod(n.policy("policy_setup_timeout_seconds", 60, "endpoint_status_dir", n.dir))
		if _, err := os.Stat(filepath.Join(n.dir, "k8s shop%2Fweb-0 eth0")); err != nil {
			t.Errorf("ADD was back before the file was there: %v", err)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		if strings.Contains(n.stderr.String(), warning) {
			t.Errorf("log:\n%s", n.stderr.String())
		}
	})
	t.Run("Network/51 in vain is only a warning", func(t *testing.T) {
		t.Parallel()
		n := podNode(t, nil, nil)
		began := time.Now()
		n.mustAddPod(n.policy("policy_setup_timeout_seconds", 1, "endpoint_status_dir", filepath.Join(n.dir, "nowhere")))
		if waited := time.Since(began); waited < time.Second || !strings.Contains(n.stderr.String(), warning) {
			t.Errorf("waited %v; log:\n%s", waited, n.stderr.String())
		}
	})
	t.Run("Network/51 not on Windows", func(t *testing.T) {
		t.Parallel()
		n := podNode(t, nil, nil)
		a := &addition{serving: n.began(n.policy("policy_setup_timeout_seconds", 60))}
		a.GOOS = "windows"
		a.made = &dataplane.Link{HostInterface: "cali1"}
		a.awaitPolicy(deadline(t))
		if !strings.Contains(n.stderr.String(), "no effect on Windows") {
			t.Errorf("log:\n%s", n.stderr.String())
		}
	})
}

// began is a call of ADD for the pod that has begun.
func (n *node) began(conf []byte) *serving {
	n.t.Helper()
	s, err := n.plugin.begin(n.call(invocation.Add, conf, inPod))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { s.End(&err) })
	if err := s.identify(); err != nil {
		n.t.Fatal(err)
	}
	return s
}
