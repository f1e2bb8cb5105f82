package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"calico-cni/test/cluster/isolated"
)

// variable holds the plan of the node that this process is the first of.
const variable = "CALICO_CNI_TEST_NODE"

// plan is what a node's first process builds the node from.
type plan struct {
	Name string
	// Folder holds the node's disk, and what lives as long as a boot.
	Folder string
	// Programs are bound into the node's programs folder by their base names.
	Programs []string
}

// programs is where a node finds the programs of its plan.
const programs = "/run/programs"

// readyFile is the descriptor that init reports on.
const readyFile = 3

// Main runs what a node is made of, if this process was started as such, and
// does not return then. It must be the first thing that TestMain does.
func Main() {
	if text := os.Getenv(variable); text != "" {
		os.Exit(initialise(text))
	}
	if os.Getenv(collectVariable) != "" {
		os.Exit(collect())
	}
}

// initialise is the first process of a node.
func initialise(text string) int {
	ready := os.NewFile(readyFile, "ready")
	var p plan
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = p.boot()
	}
	if err != nil {
		fmt.Fprintln(ready, err)
		return 1
	}
	if err := ready.Close(); err != nil {
		return 1
	}
	return reap()
}

// reap buries the processes that lost their parents, for ever.
func reap() int {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	for range ended {
		for {
			var status syscall.WaitStatus
			if pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
	}
	return 1 // never: the channel stays open
}

// boot makes the node's view of its machine and moves into it.
func (p *plan) boot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("parting with the mounts outside: %w", err)
	}
	if err := unix.Sethostname([]byte(p.Name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	for _, step := range []func() error{p.mountRoot, p.mountKernel, p.bindPrograms, p.enter, settings, isolated.LoopbackUp} {
		if err := step(); err != nil {
			return fmt.Errorf("booting %s: %w", p.Name, err)
		}
	}
	return nil
}

func (p *plan) root(path string) string { return filepath.Join(p.Folder, "root", path) }

// own are the folders that hold a node's state, and so nothing of the
// machine's. They are on the node's disk, which outlives a boot.
var own = map[string]string{"/var": "var", "/opt": "opt", "/etc/cni": "cni", "/etc/kubernetes": "kubernetes"}

// mountRoot gives the node the machine's programs and libraries, which it may
// write to without the machine seeing it.
func (p *plan) mountRoot() error {
	disk := func(name string) string { return filepath.Join(p.Folder, "disk", name) }
	for _, folder := range []string{"upper", "work", "var/lib", "var/log", "var/tmp", "opt", "cni", "kubernetes"} {
		if err := os.MkdirAll(disk(folder), 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(p.root(""), 0o755); err != nil {
		return err
	}
	options := "lowerdir=/,upperdir=" + disk("upper") + ",workdir=" + disk("work")
	if err := unix.Mount("overlay", p.root(""), "overlay", 0, options); err != nil {
		return fmt.Errorf("mounting the root folder: %w", err)
	}
	for at, from := range own {
		if err := os.MkdirAll(p.root(at), 0o755); err != nil {
			return err
		}
		if err := unix.Mount(disk(from), p.root(at), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", at, err)
		}
	}
	if err := os.Symlink("/run", p.root("var/run")); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, at := range []string{"run", "tmp"} {
		if err := unix.Mount("tmpfs", p.root(at), "tmpfs", 0, "mode=1777"); err != nil {
			return fmt.Errorf("mounting /%s: %w", at, err)
		}
	}
	return nil
}

// mountKernel mounts the kernel's file systems for the node's namespaces.
func (p *plan) mountKernel() error {
	if err := unix.Mount("proc", p.root("proc"), "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := unix.Mount("/dev", p.root("dev"), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting /dev: %w", err)
	}
	return isolated.MountSys("/sys", p.root("sys"), p.root("run/cgroup"))
}

func (p *plan) bindPrograms() error {
	if err := os.MkdirAll(p.root(programs), 0o755); err != nil {
		return err
	}
	for _, program := range p.Programs {
		at := p.root(filepath.Join(programs, filepath.Base(program)))
		if err := os.WriteFile(at, nil, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(program, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", program, err)
		}
	}
	return nil
}

// enter makes the node's root this process's, and lets go of what was outside.
func (p *plan) enter() error {
	if err := os.Chdir(p.root("")); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("changing the root folder: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the root folder outside: %w", err)
	}
	return os.Chdir("/")
}

// harmless are settings of the whole kernel, which a kubelet wants so. The node
// gets files in their place: neither the kubelet nor a boot may change the
// machine's.
var harmless = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
	"kernel/random/boot_id":     "", // made anew at every boot
}

// settings switches forwarding on, as the administrator of a node does, and
// plays the settings that are not the node's own.
func settings() error {
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte("1"), 0o644); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("/run/settings", 0o755); err != nil {
		return err
	}
	for name, value := range harmless {
		at := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(at); err != nil {
			continue // this kernel has none
		}
		if name == "kernel/random/boot_id" {
			id, err := os.ReadFile("/proc/sys/kernel/random/uuid")
			if err != nil {
				return fmt.Errorf("making an id of the boot: %w", err)
			}
			value = strings.TrimSpace(string(id))
		}
		file := filepath.Join("/run/settings", strings.ReplaceAll(name, "/", "-"))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", at, err)
		}
	}
	return nil
}
