package pair

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/test/pair/gate"
)

// call is one execution of a plugin.
type call struct {
	verb  string
	stdin string
	// plugin is calico unless said otherwise.
	plugin string
	args   []string
	// env is added to the variables of the verb; later ones win, and one
	// without value is removed.
	env      []string
	readOnly bool
	// withoutIPv6 gives the host a kernel that was started without IPv6.
	withoutIPv6 bool
	// decide gates the process's system calls, gated says which; default are
	// netlink requests and file locks.
	decide gate.Decide
	gated  []string
}

// verb is a call for a pod.
func (p *pod) verb(t testing.TB, verb string, c config) call {
	t.Helper()
	return call{verb: verb, stdin: c.json(t), env: []string{
		"CNI_CONTAINERID=" + p.container, "CNI_IFNAME=" + p.ifName, "CNI_NETNS=" + p.network.Path(), "CNI_ARGS=" + p.args,
	}}
}

// hostVerb is a STATUS, GC or VERSION.
func hostVerb(t testing.TB, verb string, c config) call {
	t.Helper()
	return call{verb: verb, stdin: c.json(t)}
}

func (c call) with(env ...string) call {
	c.env = append(c.env[:len(c.env):len(c.env)], env...)
	return c
}

func (c call) withoutNetns() call { return c.with("CNI_NETNS=") }

// process is a plugin that was started.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	verb, stdin    string
	gateDone       chan error
}

// start executes a plugin on the host.
func (h *host) start(t *testing.T, c call) *process {
	t.Helper()
	where := executables(t)
	plugin := c.plugin
	if plugin == "" {
		plugin = "calico"
	}
	if !filepath.IsAbs(plugin) {
		plugin = filepath.Join(where.pair, plugin)
	}
	p := &process{verb: c.verb, stdin: c.stdin, gateDone: make(chan error, 1)}
	arguments := []string{"-root", h.root}
	if c.readOnly {
		arguments = append(arguments, "-readonly")
	}
	if c.withoutIPv6 {
		arguments = append(arguments, "-without-ipv6")
	}
	var watch *gate.Gate
	if c.decide != nil {
		var err error
		if watch, err = gate.New(); err != nil {
			t.Fatal(err)
		}
		gated := c.gated
		if gated == nil {
			gated = []string{"sendto", "flock"}
		}
		arguments = append(arguments, "-gate", "3", "-calls", strings.Join(gated, ","))
	}
	p.cmd = exec.Command(filepath.Join(where.tools, "launch"), append(append(arguments, plugin), c.args...)...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = strings.NewReader(c.stdin), &p.stdout, &p.stderr
	p.cmd.Env = environment(where, c)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if watch != nil {
		p.cmd.ExtraFiles = []*os.File{watch.Socket()}
	}
	h.network.Do(t, func() {
		if err := p.cmd.Start(); err != nil {
			t.Fatalf("executing %s: %v", plugin, err)
		}
	})
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // of a test that has failed
	done := p.gateDone
	if watch == nil {
		done <- nil
	} else {
		go func() { done <- watch.Serve(c.decide) }()
	}
	return p
}

func environment(where folders, c call) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + c.verb, "CNI_PATH=" + where.cniPath()}
	if c.verb == "" {
		env = []string{"PATH=" + os.Getenv("PATH")}
	}
	for _, pair := range c.env {
		name, value, _ := strings.Cut(pair, "=")
		env = append(env, pair)
		if value == "" {
			env = removeVariable(env, name)
		}
	}
	return env
}

func removeVariable(env []string, name string) []string {
	var kept []string
	for _, pair := range env {
		if !strings.HasPrefix(pair, name+"=") {
			kept = append(kept, pair)
		}
	}
	return kept
}

// wait waits for the process and checks what every call owes its runtime.
func (p *process) wait(t *testing.T) outcome {
	t.Helper()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("waiting for the plugin: %v", err)
	}
	if err := <-p.gateDone; err != nil {
		t.Fatal(err)
	}
	o := outcome{verb: p.verb, stdout: p.stdout.String(), stderr: p.stderr.String(), status: p.cmd.ProcessState.ExitCode()}
	if p.verb != "" {
		o.checkProtocol(t, p.stdin)
	}
	return o
}

// run executes a plugin to its end.
func (h *host) run(t *testing.T, c call) outcome {
	t.Helper()
	return h.start(t, c).wait(t)
}

// outcome is what a runtime sees of a call.
type outcome struct {
	verb           string
	stdout, stderr string
	status         int
	failure        failure
}

// failure is the error object.
type failure struct {
	CNIVersion string      `json:"cniVersion"`
	Code       cnierr.Code `json:"code"`
	Msg        string      `json:"msg"`
	Details    string      `json:"details"`
}

// checkProtocol holds for every call: standard output is one JSON object, or
// nothing when a verb without result succeeds; an error has code, message and
// the configuration's version.
func (o *outcome) checkProtocol(t *testing.T, stdin string) {
	t.Helper()
	if o.status == 0 {
		if silent := o.verb != "ADD" && o.verb != "VERSION"; silent && o.stdout != "" {
			t.Errorf("%s prints %q on success", o.verb, o.stdout)
		} else if !silent {
			onlyObject(t, o.stdout, &map[string]any{})
		}
		return
	}
	if o.status != 1 {
		t.Fatalf("%s: exit status %d; stderr:\n%s", o.verb, o.status, o.stderr)
	}
	onlyObject(t, o.stdout, &o.failure)
	want := "1.1.0"
	var document struct {
		CNIVersion string `json:"cniVersion"`
	}
	if json.Unmarshal([]byte(stdin), &document) == nil && document.CNIVersion != "" {
		want = document.CNIVersion
	}
	if o.failure.CNIVersion != want {
		t.Errorf("%s: the error object says cniVersion %q, the configuration %q", o.verb, o.failure.CNIVersion, want)
	}
	if o.failure.Code == 0 || o.failure.Code == 3 || o.failure.Msg == "" {
		t.Errorf("%s: the error object lacks a code or a message: %s", o.verb, o.stdout)
	}
}

// onlyObject decodes text, which must be one JSON object and nothing else.
func onlyObject(t *testing.T, text string, into any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("standard output is not a JSON object: %v\n%s", err, text)
	}
	if _, err := decoder.Token(); err != io.EOF {
		t.Fatalf("standard output holds more than one JSON object:\n%s", text)
	}
}

// succeeds demands that the call succeeded.
func (o outcome) succeeds(t *testing.T) outcome {
	t.Helper()
	if o.status != 0 {
		t.Fatalf("%s fails: code %d: %s\nstderr:\n%s", o.verb, o.failure.Code, o.failure.Msg, o.stderr)
	}
	return o
}

// fails demands a failure with this code whose message holds all the words.
func (o outcome) fails(t *testing.T, code cnierr.Code, words ...string) outcome {
	t.Helper()
	if o.status == 0 {
		t.Fatalf("%s succeeds, want code %d; it prints %s", o.verb, code, o.stdout)
	}
	if o.failure.Code != code {
		t.Fatalf("%s fails with code %d, want %d: %s", o.verb, o.failure.Code, code, o.failure.Msg)
	}
	for _, word := range words {
		if !strings.Contains(o.failure.Msg, word) {
			t.Errorf("%s: the message does not name %q: %s", o.verb, word, o.failure.Msg)
		}
	}
	return o
}

// result is the part of an ADD's result that tests look at.
type result struct {
	CNIVersion string `json:"cniVersion"`
	Interfaces []struct {
		Name    string `json:"name"`
		Mac     string `json:"mac"`
		Mtu     int    `json:"mtu"`
		Sandbox string `json:"sandbox"`
	} `json:"interfaces"`
	IPs []struct {
		Interface *int   `json:"interface"`
		Address   string `json:"address"`
		Gateway   string `json:"gateway"`
	} `json:"ips"`
	Routes []struct {
		Dst string `json:"dst"`
	} `json:"routes"`
}

func (o outcome) result(t *testing.T) result {
	t.Helper()
	var r result
	if err := json.Unmarshal([]byte(o.succeeds(t).stdout), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// addresses are the addresses of the result without their prefix lengths.
func (r result) addresses() []string {
	var addresses []string
	for _, ip := range r.IPs {
		address, _, _ := strings.Cut(ip.Address, "/")
		addresses = append(addresses, address)
	}
	return addresses
}

// add puts the pod on the network.
func (h *host) add(t *testing.T, p *pod, c config) result {
	t.Helper()
	return h.run(t, p.verb(t, "ADD", c)).result(t)
}

// del takes the pod off the network.
func (h *host) del(t *testing.T, p *pod, c config) {
	t.Helper()
	h.run(t, p.verb(t, "DEL", c)).succeeds(t)
}
