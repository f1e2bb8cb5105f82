//go:build kubernetes

package pair

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"calico-cni/test/kubetest"
)

const (
	// rolloutPods are created at once on one node: more than a block holds.
	rolloutPods = 100
	// blockWrites is what one pod may write blocks, conflicts included.
	blockWrites = 3
)

// writers counts the writes of blocks by connection: every process has one of
// its own.
type writers struct {
	mu     sync.Mutex
	writes map[string]int
}

func (w *writers) hook(answer http.ResponseWriter, r *http.Request, next http.Handler) {
	if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/ipamblocks") {
		w.mu.Lock()
		w.writes[r.RemoteAddr]++
		w.mu.Unlock()
	}
	next.ServeHTTP(answer, r)
}

// counts returns all writes, and the most of one process.
func (w *writers) counts() (all, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, count := range w.writes {
		all, most = all+count, max(most, count)
	}
	w.writes = map[string]int{}
	return all, most
}

// rolloutPodsOf makes pods in the cluster and their namespaces on this machine.
func rolloutPodsOf(t *testing.T, c *kubetest.Cluster) []*pod {
	t.Helper()
	var pods []*pod
	for i := range rolloutPods {
		name := fmt.Sprint("roll-", i)
		c.Admin().Do(t, "POST", shopPods, map[string]any{
			"metadata": map[string]any{"name": name},
			"spec":     map[string]any{"nodeName": "node-1", "containers": []any{map[string]any{"name": "web", "image": "none"}}},
		})
		t.Cleanup(func() { c.Admin().Do(t, "DELETE", shopPods+"/"+name+"?gracePeriodSeconds=0", nil) })
		pods = append(pods, newPod(t, fmt.Sprintf("%03d-%s", i, sandboxA), "K8S_POD_NAMESPACE=shop;K8S_POD_NAME="+name))
	}
	return pods
}

// atOnce executes a plugin for all pods at once and returns the outcomes, in
// the order of the pods, and how long it took until the last one was done.
func (h *host) atOnce(t *testing.T, pods []*pod, verb string, c config, plugin string) ([]outcome, time.Duration) {
	t.Helper()
	executables(t) // building them takes no part in the time
	var running []*process
	began := time.Now()
	for _, p := range pods {
		execution := p.verb(t, verb, c)
		execution.plugin = plugin
		running = append(running, h.start(t, execution))
	}
	outcomes := make([]outcome, len(pods))
	for i, process := range running {
		outcomes[i] = process.wait(t)
	}
	took := time.Since(began)
	for _, o := range outcomes {
		o.succeeds(t)
	}
	return outcomes, took
}

// TestKubernetesRollout creates 100 pods on one node at once, and deletes them
// at once: no call fails, nobody fights for blocks. How long it takes is
// printed beside the same with upstream's ptp and host-local.
func TestKubernetesRollout(t *testing.T) {
	c := newKubernetes(t)
	s, proxy := kubernetesScene(t, c)
	conf := s.c.with("ipam.assign_ipv6", "false").with("log_level", "info")
	pods := rolloutPodsOf(t, c)
	w := &writers{writes: map[string]int{}}
	proxy.Hook(w.hook)

	added, adding := s.atOnce(t, pods, "ADD", conf, "")
	all, most := w.counts()
	if most > blockWrites || all < rolloutPods {
		t.Errorf("%d pods wrote blocks %d times, one of them %d times; want at most %d of each", rolloutPods, all, most, blockWrites)
	}
	s.eachHasItsOwn(t, pods, added)
	for _, i := range []int{0, rolloutPods / 2, rolloutPods - 1} {
		s.works(t, pods[i], added[i].result(t))
	}
	_, deleting := s.atOnce(t, pods, "DEL", conf, "")
	released, _ := w.counts()
	s.nothingLeft(t)

	ptpAdding, ptpDeleting := s.reference(t, pods)
	measured("%d pods at once on one node: calico with calico-ipam on a real API server: ADD %.1f s, DEL %.1f s; "+
		"ptp with host-local: ADD %.1f s, DEL %.1f s; block writes: %d for ADD, at most %d by one pod, %d for DEL",
		rolloutPods, adding.Seconds(), deleting.Seconds(), ptpAdding.Seconds(), ptpDeleting.Seconds(), all, most, released)
}

// eachHasItsOwn demands one address for every pod, recorded as the result says.
func (s *scene) eachHasItsOwn(t *testing.T, pods []*pod, added []outcome) {
	t.Helper()
	now := s.objects(t)
	now.consistent(t)
	held, owner := now.allocated(t), map[string]string{}
	for i, o := range added {
		addresses, container := o.result(t).addresses(), pods[i].container
		if !slices.Equal(held[pods[i].handleID()], addresses) || len(addresses) != 1 {
			t.Errorf("%s holds %v, its ADD says %v", container, held[pods[i].handleID()], addresses)
			continue
		}
		if other, twice := owner[addresses[0]]; twice {
			t.Errorf("%s was given to %s and to %s", addresses[0], other, container)
		}
		owner[addresses[0]] = container
	}
}

// reference does the same with upstream's plugins, which ask no server.
func (s *scene) reference(t *testing.T, pods []*pod) (adding, deleting time.Duration) {
	t.Helper()
	ptp := filepath.Join(t.TempDir(), "ptp")
	if out, err := exec.Command("go", "build", "-o", ptp, "github.com/containernetworking/plugins/plugins/main/ptp").CombinedOutput(); err != nil {
		t.Fatalf("building ptp: %v\n%s", err, out)
	}
	conf := config{"cniVersion": "1.0.0", "name": "ptp", "type": "ptp", "ipam": map[string]any{
		"type": "host-local", "subnet": "10.99.0.0/24", "routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
	}}
	for _, p := range pods {
		p.args = "IgnoreUnknown=1;" + p.args // calico adds it by itself
	}
	_, adding = s.atOnce(t, pods, "ADD", conf, ptp)
	_, deleting = s.atOnce(t, pods, "DEL", conf, ptp)
	s.nothingLeft(t)
	return adding, deleting
}
