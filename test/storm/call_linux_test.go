package storm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	networkName = "net"
	nodeName    = "node-1"
)

// config is a plugin's network configuration.
type config map[string]any

// newConfig is a dual-stack network on the embedded datastore. Its blocks are
// so small that several are claimed and released.
func newConfig() config {
	pool := func(cidr string, blockSize int) map[string]any {
		return map[string]any{"cidr": cidr, "blockSize": blockSize, "natOutgoing": true}
	}
	return config{
		"cniVersion": "1.1.0", "name": networkName, "type": "calico",
		"nodename": nodeName, "nodename_file_optional": true, "log_level": "debug",
		"pools": []any{pool("10.77.0.0/24", 29), pool("fd00:77::/112", 125)},
		"ipam":  map[string]any{"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "true"},
	}
}

// with is a copy with one more key.
func (c config) with(key string, value any) config {
	changed := config{key: value}
	for k, v := range c {
		if k != key {
			changed[k] = v
		}
	}
	return changed
}

// call is one execution of the plugin.
type call struct {
	verb                           string
	conf                           config
	container, ifName, netns, args string
	// killAfter ends the process at that moment of its life; 0 lets it live.
	killAfter time.Duration
}

// outcome is what a runtime sees of a call.
type outcome struct {
	killed         bool
	stdout, stderr string
	took           time.Duration
	failure        failure
}

// failure is the error object; code 0 is success.
type failure struct {
	Code int    `json:"code"`
	Msg  string `json:"msg"`
}

func (o outcome) String() string {
	switch {
	case o.killed:
		return "killed"
	case o.failure.Code != 0:
		return fmt.Sprintf("fails with %d: %s", o.failure.Code, o.failure.Msg)
	}
	return "succeeds"
}

// execute runs a call to its end.
func (h *host) execute(t *testing.T, c call) (outcome, error) {
	t.Helper()
	stdin, err := json.Marshal(c.conf)
	if err != nil {
		return outcome{}, err
	}
	var o outcome
	var stdout, stderr bytes.Buffer
	cmd := h.command("calico")
	cmd.Env = append(cmd.Env, "CNI_COMMAND="+c.verb, "CNI_PATH="+h.plugins,
		"CNI_CONTAINERID="+c.container, "CNI_IFNAME="+c.ifName, "CNI_NETNS="+c.netns, "CNI_ARGS="+c.args)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	begin := time.Now()
	h.network.Do(t, func() { err = cmd.Start() })
	if err != nil {
		return outcome{}, err
	}
	if c.killAfter > 0 {
		timer := time.AfterFunc(c.killAfter, func() { _ = cmd.Process.Kill() }) // fails if it has ended
		defer timer.Stop()
	}
	err = cmd.Wait()
	o.took, o.stdout, o.stderr = time.Since(begin), stdout.String(), stderr.String()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return o, err
	}
	return o, o.judge(cmd.ProcessState.Sys().(syscall.WaitStatus))
}

// command runs an executable of the pair on the host.
func (h *host) command(name string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(h.where.launch, append([]string{"-root", h.root, filepath.Join(h.plugins, name)}, arguments...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// judge reads what every call owes its runtime: success, or one error object.
func (o *outcome) judge(status syscall.WaitStatus) error {
	switch {
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		o.killed = true
		return nil
	case status.ExitStatus() == 0:
		return nil
	}
	if err := json.Unmarshal([]byte(o.stdout), &o.failure); err != nil || o.failure.Code == 0 {
		return fmt.Errorf("exit status %d without an error object: %q; stderr:\n%s", status.ExitStatus(), o.stdout, o.stderr)
	}
	return nil
}

// result is the part of an ADD's result that the storm looks at.
type result struct {
	Interfaces []struct {
		Name string `json:"name"`
	} `json:"interfaces"`
	IPs []struct {
		Address string `json:"address"`
	} `json:"ips"`
}

// parse reads the result of a successful ADD.
func (o outcome) parse() (result, error) {
	var r result
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		return r, fmt.Errorf("the result of ADD: %w", err)
	}
	if len(r.Interfaces) != 2 || len(r.IPs) != 2 {
		return r, fmt.Errorf("the result of ADD has not two interfaces and two addresses: %s", o.stdout)
	}
	return r, nil
}

// addresses are those of the result without their prefix lengths.
func (r result) addresses() []string {
	var addresses []string
	for _, ip := range r.IPs {
		address, _, _ := strings.Cut(ip.Address, "/")
		addresses = append(addresses, address)
	}
	return addresses
}
