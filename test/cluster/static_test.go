//go:build kubernetes && linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"calico-cni/test/cluster/node"
)

const staticPod = "web"

// manifest writes a static pod's manifest. Another generation is another pod
// to the kubelet, with the same name.
func (s *scene) manifest(generation int) {
	s.Helper()
	pod := podOn(staticPod, "")
	pod["metadata"].(object)["annotations"] = object{"generation": strconv.Itoa(generation)}
	text, err := json.Marshal(pod)
	if err != nil {
		s.Fatal(err)
	}
	// In one step, lest the kubelet reads half of it.
	n := s.nodes[0]
	n.Write(s, "/etc/kubernetes/"+staticPod, string(text), 0o644)
	if err := os.Rename(n.File("/etc/kubernetes/"+staticPod), n.File(node.ManifestFolder+"/"+staticPod+".yaml")); err != nil {
		s.Fatal(err)
	}
}

// successor waits until a static pod runs in another sandbox than the last,
// and until everyone knows its addresses.
func (s *scene) successor(last string) *node.Sandbox {
	s.Helper()
	name := staticPod + "-" + s.nodes[0].Name
	var found *node.Sandbox
	s.until("waiting for the next sandbox of "+name, func() error {
		sandboxes, err := s.onNetwork(0)
		if err != nil {
			return err
		}
		if len(sandboxes) != 1 || sandboxes[0].ID == last {
			return fmt.Errorf("%d sandboxes, the last was %s", len(sandboxes), last)
		}
		found = sandboxes[0]
		mirror, err := get(shared.Admin(), pods+"/"+name)
		if err != nil {
			return err
		}
		if recorded := recorded(mirror); len(recorded) != families || !slices.Equal(recorded, found.Addresses) {
			return fmt.Errorf("the sandbox has addresses %v, recorded are %v", found.Addresses, recorded)
		}
		if _, err := s.runtimes[0].Exec(context.Background(), name, "connect", "127.0.0.1:80"); err != nil {
			return err
		}
		return nil
	})
	return found
}

// TestStaticPod: a static pod works however often it is killed, and replaced
// by another of its name.
func TestStaticPod(t *testing.T) {
	const times = 10
	s := newCluster(t)
	s.createPod("client", s.nodes[1].Name)
	s.running("client")
	s.manifest(0)
	sandbox := s.successor("")
	s.route()
	for i := range times {
		// A kubelet takes many seconds to replace a static pod by its namesake.
		if i%4 != 3 {
			if _, err := s.nodes[0].Run("kill", "-9", strconv.Itoa(sandbox.PID)); err != nil {
				t.Fatal(err)
			}
		} else {
			s.manifest(i)
		}
		sandbox = s.successor(sandbox.ID)
		s.reaches(s.runtimes[1], "client", sandbox.Addresses...)
		s.serves(s.runtimes[1], "client", staticPod+"-"+s.nodes[0].Name, sandbox.Addresses...)
		s.holdsSoon()
	}
	if err := os.Remove(s.nodes[0].File(node.ManifestFolder + "/" + staticPod + ".yaml")); err != nil {
		t.Fatal(err)
	}
	s.until("waiting for the static pod to be gone", func() error {
		if sandboxes, err := s.onNetwork(0); err != nil || len(sandboxes) > 0 {
			return errors.Join(err, fmt.Errorf("%d sandboxes", len(sandboxes)))
		}
		return nil
	})
	s.delete("client")
	s.holdsSoon()
}
