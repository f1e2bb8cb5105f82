package entry

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/invocation"
)

// serving is set in a process that plays a plugin.
const serving = "CALICO_CNI_TEST_SERVES"

func TestMain(m *testing.M) {
	if os.Getenv(serving) != "" {
		os.Exit(Serve(context.Background(), Process(Network), talker{}))
	}
	os.Exit(m.Run())
}

// talker is a plugin that logs before it answers.
type talker struct{ invocation.Plugin }

func (talker) Add(_ context.Context, call *invocation.Call) error {
	fmt.Fprintln(os.Stderr, "a line of the log")
	return call.Deliver(&types100.Result{CNIVersion: "1.1.0"})
}

func TestClosedStderrEndsNoVerb(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), serving+"=1",
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_NETNS=/ns", "CNI_IFNAME=eth0", "CNI_PATH=/bin")
	command.Stdin = bytes.NewReader([]byte(`{"cniVersion":"1.1.0","name":"net"}`))
	command.Stderr = writer
	if stdout, err := command.Output(); err != nil || !bytes.Contains(stdout, []byte("cniVersion")) {
		t.Errorf("%v, stdout %q", err, stdout)
	}
}

func TestRole(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		row, arg0 string
		served    []string
		want      string
	}{
		{"Network/1 network plugin", "/opt/cni/bin/calico", []string{Network, IPAM}, Network},
		{"Network/1 IPAM plugin by the same executable", "/opt/cni/bin/calico-ipam", []string{Network, IPAM}, IPAM},
		{"Network/1 installer of an image", "/opt/cni/bin/install", []string{Network, IPAM, Install}, Install},
		{"Network/1 installer by an executable that is none", "/opt/cni/bin/install", []string{IPAM}, ""},
		{"Network/1 Windows", "calico-ipam.exe", []string{IPAM}, IPAM},
		{"Network/1 another name", "/opt/cni/bin/bridge", []string{Network, IPAM}, ""},
		{"Network/1 a role that the executable cannot serve", "/opt/cni/bin/calico", []string{IPAM}, ""},
		{"Network/1 a name that begins the same", "calico-ipam.old", []string{Network, IPAM}, ""},
	} {
		t.Run(test.row, func(t *testing.T) {
			t.Parallel()
			got, err := Role(test.arg0, test.served...)
			if got != test.want || (err != nil) != (test.want == "") {
				t.Errorf("role %q, %v, want %q", got, err, test.want)
			}
			if err != nil && cnierr.CodeOf(err) != cnierr.Startup {
				t.Errorf("code %d, want %d", cnierr.CodeOf(err), cnierr.Startup)
			}
		})
	}
}

func TestParseFlags(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		role string
		args []string
		want Flags
		ok   bool
	}{
		"none":                 {Network, nil, Flags{}, true},
		"version":              {Network, []string{"-v"}, Flags{Version: true}, true},
		"version, IPAM":        {IPAM, []string{"-v"}, Flags{Version: true}, true},
		"connection test":      {Network, []string{"-t"}, Flags{Test: true}, true},
		"connection test IPAM": {IPAM, []string{"-t"}, Flags{}, false},
		"upgrade":              {IPAM, []string{"-upgrade"}, Flags{Upgrade: true}, true},
		"upgrade, network":     {Network, []string{"-upgrade"}, Flags{}, false},
		"unknown flag":         {Network, []string{"-x"}, Flags{}, false},
		"an argument":          {Network, []string{"add"}, Flags{}, false},
		"help":                 {Network, []string{"-h"}, Flags{Help: true}, true},
	} {
		got, err := ParseFlags(test.role, test.args)
		if (err == nil) != test.ok || test.ok && got != test.want {
			t.Errorf("%s: flags %+v, %v", name, got, err)
		}
		if err != nil && cnierr.CodeOf(err) != cnierr.Startup {
			t.Errorf("%s: code %d, want %d", name, cnierr.CodeOf(err), cnierr.Startup)
		}
	}
}
