package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"calico-cni/test/pair/gate"
)

func main() {
	root := flag.String("root", "", "folder with the host's run and var/lib")
	readOnly := flag.Bool("readonly", false, "make the host's /var/lib read-only")
	withoutIPv6 := flag.Bool("without-ipv6", false, "play a kernel that was started without IPv6")
	socket := flag.Int("gate", -1, "descriptor of a gate's socket")
	calls := flag.String("calls", "", "system calls to gate")
	flag.Parse()

	runtime.LockOSThread()
	err := furnish(*root, *readOnly)
	if err == nil && *withoutIPv6 {
		err = hideIPv6()
	}
	if err == nil && *socket >= 0 {
		// The kernel closes it on execution, as every descriptor of the gate.
		unix.CloseOnExec(*socket)
		err = gate.Install(*socket, strings.Split(*calls, ","))
	}
	if err == nil {
		err = syscall.Exec(flag.Arg(0), flag.Args(), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "launch:", err)
	os.Exit(125)
}

// furnish puts the host's folders over the machine's. The named network
// namespaces stay visible, because CNI_NETNS points there.
func furnish(root string, readOnly bool) error {
	mounts := []struct{ from, to string }{
		{"/run/netns", filepath.Join(root, "run/netns")},
		{filepath.Join(root, "run"), "/run"},
		{filepath.Join(root, "var/lib"), "/var/lib"},
	}
	for _, m := range mounts {
		if err := os.MkdirAll(m.from, 0o755); err != nil {
			return err
		}
		if err := os.MkdirAll(m.to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.from, m.to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", m.from, m.to, err)
		}
	}
	if readOnly {
		if err := unix.Mount("", "/var/lib", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("making /var/lib read-only: %w", err)
		}
	}
	return nil
}

// hideIPv6 empties the folder of the IPv6 sysctls, which a kernel started with
// ipv6.disable=1 does not have.
func hideIPv6() error {
	const folder = "/proc/sys/net/ipv6"
	if err := unix.Mount("none", folder, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("hiding %s: %w", folder, err)
	}
	return nil
}
