package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"calico-cni/test/cluster/isolated"
)

const (
	folders  = "/run/nodes"
	askAgain = 50 * time.Millisecond
	// startTimeout is generous: other tests may use the processors.
	startTimeout = 90 * time.Second
)

// made counts the nodes: each gets addresses and interfaces of its own.
var made atomic.Int32

// Node is a node of the test's cluster.
type Node struct {
	Name string
	// Address and Address6 are those on the network of the nodes.
	Address, Address6 string

	index    int
	cgroup   string
	programs []string
	init     *exec.Cmd
	links    *netlink.Handle
	running  []*Program
	// Containerd and runtime are the program and the connection with it.
	Containerd *Program
	runtime    *Runtime
}

// New boots a node, whose control group is made below the one given. It gets
// the programs by their base names, and is removed when the test ends.
func New(t testing.TB, name, cgroup string, programs ...string) *Node {
	t.Helper()
	index := firstIndex + int(made.Add(1)) - 1
	n := &Node{
		Name: name, Address: fmt.Sprintf(network, index), Address6: fmt.Sprintf(network6, index),
		index: index, cgroup: filepath.Join(cgroup, name), programs: programs,
	}
	t.Cleanup(func() {
		n.PowerOff(t)
		_ = os.RemoveAll(n.folder()) // in memory
	})
	n.Boot(t)
	return n
}

func (n *Node) folder() string { return filepath.Join(folders, n.Name) }

// File is where this process finds a file of the running node.
func (n *Node) File(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", n.init.Process.Pid, path)
}

// Boot starts the node on its disk, with no program running.
func (n *Node) Boot(t testing.TB) {
	t.Helper()
	if err := isolated.MakeCgroup(n.cgroup); err != nil {
		t.Fatal(err)
	}
	if err := n.boot(); err != nil {
		t.Fatal(err)
	}
	handle, err := netns.GetFromPid(n.init.Process.Pid)
	if err != nil {
		t.Fatalf("opening the network namespace of %s: %v", n.Name, err)
	}
	defer handle.Close()
	if n.links, err = netlink.NewHandleAt(handle); err != nil {
		t.Fatalf("opening the network namespace of %s: %v", n.Name, err)
	}
	if err := n.plugIn(); err != nil {
		t.Fatal(err)
	}
}

// boot starts the node's first process and waits until it has made the node.
func (n *Node) boot() error {
	text, err := json.Marshal(plan{Name: n.Name, Folder: n.folder(), Programs: append(n.programs, "/proc/self/exe")})
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	n.init = exec.Command(executable)
	n.init.Env = append(os.Environ(), variable+"="+string(text))
	n.init.Stderr = os.Stderr
	n.init.ExtraFiles = []*os.File{write} // becomes readyFile
	n.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	err = n.init.Start()
	_ = write.Close() // the child has its own
	if err != nil {
		return fmt.Errorf("starting %s: %w", n.Name, err)
	}
	complaint, err := io.ReadAll(read)
	if err == nil && len(complaint) > 0 {
		err = errors.New(strings.TrimSpace(string(complaint)))
	}
	return err
}

// PowerOff ends the node as a power cut does: every process in it is killed at
// once, and its namespaces and what was in memory are gone. Its disk stays.
func (n *Node) PowerOff(t testing.TB) {
	t.Helper()
	if t.Failed() {
		n.tell(t)
	}
	n.hangUp()
	if n.links != nil {
		n.links.Close()
	}
	_ = n.init.Process.Kill() // fails if it is gone, which is fine
	_ = n.init.Wait()         // killed
	for _, program := range n.running {
		<-program.ended
	}
	n.running = nil
	if err := n.unplug(); err != nil {
		t.Error(err)
	}
	if err := isolated.RemoveCgroup(n.cgroup); err != nil {
		t.Error(err)
	}
}

// Program is a program that runs on a node until the node ends.
type Program struct {
	Name string

	command *exec.Cmd
	output  *os.File
	ended   chan struct{}
}

// inside is a command in all namespaces of the node.
func (n *Node) inside(arguments ...string) *exec.Cmd {
	pid := strconv.Itoa(n.init.Process.Pid)
	command := exec.Command("nsenter", append([]string{"--target", pid, "--mount", "--uts", "--ipc", "--net", "--pid", "--"}, arguments...)...)
	// Nothing of the environment outside: folders that it names are not there.
	command.Env = []string{"PATH=" + programs + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return command
}

// Run runs a command on the node and returns what it prints.
func (n *Node) Run(arguments ...string) (string, error) {
	var stderr bytes.Buffer
	command := n.inside(arguments...)
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%s: %v: %w: %s%s", n.Name, arguments, err, output, &stderr)
	}
	return string(output), err
}

// start runs a program on the node in the background.
func (n *Node) start(t testing.TB, name string, arguments ...string) *Program {
	t.Helper()
	output, err := os.CreateTemp("", n.Name+"-"+name+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{Name: name, command: n.inside(append([]string{name}, arguments...)...), output: output, ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = output, output
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(p.ended)
		err := p.command.Start()
		started <- err
		if err == nil {
			_ = p.command.Wait() // killed, in the end
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("starting %s on %s: %v", name, n.Name, err)
	}
	n.running = append(n.running, p)
	return p
}

// Kill kills the program on its node, and waits until it is gone. What it has
// started lives on.
func (p *Program) Kill(t testing.TB) {
	t.Helper()
	outside := p.command.Process.Pid // nsenter, whose only child is the program
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", outside, outside))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatalf("killing %s: %v", p.Name, err)
	}
	<-p.ended
}

// await asks until there is no error, or the program ends, or time is up.
func (p *Program) await(t testing.TB, what string, ask func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		if err = ask(); err == nil {
			return
		}
		select {
		case <-p.ended:
			t.Fatalf("%s: %s ended: %s", what, p.Name, p.tail())
		case <-time.After(askAgain):
		}
	}
	t.Fatalf("%s: %v after %v; %s said: %s", what, err, startTimeout, p.Name, p.tail())
}

// shownLines of a program's output are shown when something fails.
const shownLines = 40

func (p *Program) tail() string { return tail(p.output.Name()) }

// tail is the end of a file.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-shownLines):], "\n")
}

// logs are the files that the plugins, and the installer in its pod, write on a
// node.
var logs = []string{"/var/log/calico/cni/cni.log", "/var/log/pods/kube-system_*/*/*.log"}

// tell shows what the programs of the node said.
func (n *Node) tell(t testing.TB) {
	t.Helper()
	for _, p := range n.running {
		t.Logf("%s on %s said:\n%s", p.Name, n.Name, p.tail())
	}
	for _, pattern := range logs {
		files, err := filepath.Glob(n.File(pattern))
		if err != nil {
			t.Error(err)
		}
		for _, file := range files {
			t.Logf("%s: %s:\n%s", n.Name, file, tail(file))
		}
	}
}
