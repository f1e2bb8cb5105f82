package isolated

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// exists reports in how many hierarchies a control group exists.
func exists(t *testing.T, name string) int {
	t.Helper()
	mounts, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, mount := range mounts {
		if _, err := os.Stat(filepath.Join(mount, name)); err == nil {
			found++
		}
	}
	return found
}

func TestControlGroupsOfKilledRunsAreRemoved(t *testing.T) {
	own, err := ownName()
	if err != nil {
		t.Fatal(err)
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	began, err := startOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	abandoned := []string{
		fmt.Sprintf("%s%d-%s", prefix, dead.Process.Pid, began),
		fmt.Sprintf("%s%d-%s1", prefix, os.Getpid(), began), // the number was given again
	}
	for _, name := range append(abandoned, own) {
		t.Cleanup(func() { _ = RemoveCgroup(name) })
		if err := MakeCgroup(filepath.Join(name, "node", "pod")); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeAbandoned(); err != nil {
		t.Fatal(err)
	}
	for _, name := range abandoned {
		if exists(t, name) != 0 {
			t.Errorf("%s is still there", name)
		}
	}
	if exists(t, own) == 0 {
		t.Error("the groups of a run that goes on are gone")
	}
	if err := RemoveCgroup(own); err != nil || exists(t, own) != 0 {
		t.Errorf("own groups: %v, still in %d hierarchies", err, exists(t, own))
	}
}
