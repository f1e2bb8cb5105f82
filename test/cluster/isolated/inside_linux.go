package isolated

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// temporary is on the file system in memory that furnish mounts.
const temporary = "/run/tmp"

// furnish gives the first process of the namespaces a /run in memory, the
// /proc and /sys of its namespaces, and its loopback.
func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("parting with the machine's mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mounting a file system in memory on /run: %w", err)
	}
	for _, folder := range []string{temporary, "/run/netns", "/run/lock"} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	if err := os.Setenv("TMPDIR", temporary); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := MountSys("/sys", "/sys", "/run/cgroup"); err != nil {
		return err
	}
	return LoopbackUp()
}

// MountSys mounts on to the sysfs of this process's network namespace, with
// the control groups of the sysfs at from; via is a free path between the two.
func MountSys(from, to, via string) error {
	if err := os.MkdirAll(via, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from+"/fs/cgroup", via, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keeping the control groups: %w", err)
	}
	if err := unix.Mount("sysfs", to, "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", to, err)
	}
	if err := unix.Mount(via, to+"/fs/cgroup", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("mounting the control groups: %w", err)
	}
	return nil
}

// LoopbackUp sets the loopback of this process's network namespace up.
func LoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("looking up lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	return nil
}
