package invocation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
)

// recorder is a plugin that remembers its call and answers as told.
type recorder struct {
	call *Call
	err  error
	boom any
}

func (r *recorder) serve(call *Call) error {
	r.call = call
	if r.boom != nil {
		panic(r.boom)
	}
	return r.err
}

func (r *recorder) Add(_ context.Context, c *Call) error {
	if err := r.serve(c); err != nil {
		return err
	}
	return c.Deliver(&types100.Result{
		CNIVersion: "1.1.0",
		Interfaces: []*types100.Interface{{Name: "cali1"}, {Name: "eth0", Sandbox: "/ns", Mtu: 1450}},
		IPs: []*types100.IPConfig{{
			Interface: types100.Int(1),
			Address:   net.IPNet{IP: net.IPv4(10, 9, 8, 7), Mask: net.CIDRMask(32, 32)},
		}},
	})
}
func (r *recorder) Check(_ context.Context, c *Call) error  { return r.serve(c) }
func (r *recorder) Del(_ context.Context, c *Call) error    { return r.serve(c) }
func (r *recorder) Status(_ context.Context, c *Call) error { return r.serve(c) }
func (r *recorder) GC(_ context.Context, c *Call) error     { return r.serve(c) }

// run serves one call; environ changes the complete environment of ADD, an
// empty value unsets.
func run(t *testing.T, plugin Plugin, stdin string, environ map[string]string) (exit int, stdout, stderr string) {
	t.Helper()
	env := map[string]string{
		"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/ns", "CNI_IFNAME": "eth0", "CNI_PATH": "/bin",
	}
	for name, value := range environ {
		env[name] = value
	}
	var out, errs bytes.Buffer
	exit = Run(context.Background(), Process{
		Name: "calico", Version: "v1", Getenv: func(name string) string { return env[name] },
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
	}, plugin)
	return exit, out.String(), errs.String()
}

type errorObject struct {
	CNIVersion   string
	Code         cnierr.Code
	Msg, Details string
}

// wantError checks that stdout is exactly one error object.
func wantError(t *testing.T, stdout string, code cnierr.Code, version string, parts ...string) {
	t.Helper()
	var object errorObject
	decoder := json.NewDecoder(strings.NewReader(stdout))
	if err := decoder.Decode(&object); err != nil {
		t.Fatalf("stdout %q: %v", stdout, err)
	}
	if decoder.More() {
		t.Errorf("stdout holds more than one object: %q", stdout)
	}
	if object.Code != code || object.CNIVersion != version {
		t.Errorf("error object %+v, want code %d and cniVersion %s", object, code, version)
	}
	for _, part := range parts {
		if !strings.Contains(object.Msg, part) {
			t.Errorf("message %q does not contain %q", object.Msg, part)
		}
	}
}

const minimal = `{"cniVersion":"1.1.0","name":"net","type":"calico"}`

func TestEnvironment(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 300)
	for name, test := range map[string]struct {
		environ map[string]string
		parts   []string
	}{
		"unknown verb":           {map[string]string{"CNI_COMMAND": "UPDATE"}, []string{"UPDATE"}},
		"all missing are named":  {map[string]string{"CNI_CONTAINERID": "", "CNI_NETNS": "", "CNI_PATH": ""}, []string{"CNI_CONTAINERID,CNI_NETNS,CNI_PATH"}},
		"slash in container id":  {map[string]string{"CNI_CONTAINERID": "a/b"}, []string{"CNI_CONTAINERID", "a/b"}},
		"interface of 16":        {map[string]string{"CNI_IFNAME": "abcdefghijklmnop"}, []string{"CNI_IFNAME", "abcdefghijklmnop", "15"}},
		"interface with a blank": {map[string]string{"CNI_IFNAME": "a b"}, []string{"CNI_IFNAME"}},
		"CHECK needs a netns":    {map[string]string{"CNI_COMMAND": "CHECK", "CNI_NETNS": ""}, []string{"CNI_NETNS"}},
		"STATUS needs a path":    {map[string]string{"CNI_COMMAND": "STATUS", "CNI_PATH": ""}, []string{"CNI_PATH"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exit, stdout, _ := run(t, &recorder{}, `{"cniVersion":"1.0.0"}`, test.environ)
			if exit != 1 {
				t.Errorf("exit %d, want 1", exit)
			}
			wantError(t, stdout, cnierr.InvalidEnvironment, "1.0.0", test.parts...)
		})
	}
	for name, environ := range map[string]map[string]string{
		"container id of 1":          {"CNI_CONTAINERID": "a"},
		"container id of 300":        {"CNI_CONTAINERID": long},
		"DEL without netns":          {"CNI_COMMAND": "DEL", "CNI_NETNS": ""},
		"STATUS ignores the rest":    {"CNI_COMMAND": "STATUS", "CNI_CONTAINERID": "/", "CNI_IFNAME": "/"},
		"GC ignores the rest":        {"CNI_COMMAND": "GC", "CNI_CONTAINERID": "", "CNI_IFNAME": long},
		"unknown variables tolerate": {"CNI_SOMETHING": "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plugin := &recorder{}
			if exit, stdout, _ := run(t, plugin, minimal, environ); exit != 0 || plugin.call == nil {
				t.Errorf("exit %d, stdout %s", exit, stdout)
			}
		})
	}
}

func TestNoCommand(t *testing.T) {
	t.Parallel()
	exit, stdout, stderr := run(t, &recorder{}, "", map[string]string{"CNI_COMMAND": ""})
	if exit != 0 || stdout != "" {
		t.Errorf("exit %d, stdout %q", exit, stdout)
	}
	for _, part := range []string{"calico", "v1", "0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"} {
		if !strings.Contains(stderr, part) {
			t.Errorf("stderr %q does not contain %q", stderr, part)
		}
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	t.Run("Network/2 VERSION lists exactly the seven versions, with empty stdin", func(t *testing.T) {
		exit, stdout, _ := run(t, &recorder{}, "", map[string]string{"CNI_COMMAND": "VERSION", "CNI_PATH": ""})
		var document struct {
			CNIVersion        string
			SupportedVersions []string
		}
		if err := json.Unmarshal([]byte(stdout), &document); exit != 0 || err != nil {
			t.Fatalf("exit %d, %v", exit, err)
		}
		want := []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
		if !slices.Equal(document.SupportedVersions, want) || document.CNIVersion != "1.1.0" {
			t.Errorf("document %+v", document)
		}
	})
	for _, test := range []struct {
		row     string
		verbs   []string
		version string
		code    cnierr.Code
	}{
		{"Network/3 1.1.0 works", []string{"ADD", "CHECK", "DEL", "STATUS", "GC"}, "1.1.0", 0},
		{"Network/3 1.2.0 is refused", []string{"ADD", "CHECK", "DEL", "STATUS", "GC"}, "1.2.0", cnierr.UnsupportedVersion},
		{"Network/3 x is refused", []string{"ADD", "CHECK", "DEL", "STATUS", "GC"}, "x", cnierr.UnsupportedVersion},
		{"Network/53 CHECK under 0.3.1", []string{"CHECK"}, "0.3.1", cnierr.UnsupportedVersion},
		{"Network/53 STATUS and GC under 1.0.0", []string{"STATUS", "GC"}, "1.0.0", cnierr.UnsupportedVersion},
		{"Network/53 CHECK under 0.4.0", []string{"CHECK"}, "0.4.0", 0},
		{"no version", []string{"ADD", "DEL"}, "", 0},
	} {
		for _, verb := range test.verbs {
			t.Run(test.row+"/"+verb, func(t *testing.T) {
				t.Parallel()
				exit, stdout, _ := run(t, &recorder{}, `{"cniVersion":"`+test.version+`","name":"n"}`, map[string]string{"CNI_COMMAND": verb})
				switch {
				case test.code != 0:
					wantError(t, stdout, test.code, test.version)
				case exit != 0:
					t.Errorf("exit %d: %s", exit, stdout)
				case verb != "ADD" && stdout != "":
					t.Errorf("stdout %q, want nothing", stdout)
				}
			})
		}
	}
}

func TestResultPerVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"1.1.0": `{"cniVersion":"1.1.0","interfaces":[{"name":"cali1"},{"mtu":1450,"name":"eth0","sandbox":"/ns"}],"ips":[{"address":"10.9.8.7/32","interface":1}]}`,
		"1.0.0": `{"cniVersion":"1.0.0","interfaces":[{"name":"cali1"},{"mtu":1450,"name":"eth0","sandbox":"/ns"}],"ips":[{"address":"10.9.8.7/32","interface":1}]}`,
		"0.4.0": `{"cniVersion":"0.4.0","interfaces":[{"name":"cali1"},{"name":"eth0","sandbox":"/ns"}],"ips":[{"version":"4","interface":1,"address":"10.9.8.7/32"}],"dns":{}}`,
		"0.3.1": `{"cniVersion":"0.3.1","interfaces":[{"name":"cali1"},{"name":"eth0","sandbox":"/ns"}],"ips":[{"version":"4","interface":1,"address":"10.9.8.7/32"}],"dns":{}}`,
		"0.2.0": `{"cniVersion":"0.2.0","ip4":{"ip":"10.9.8.7/32"},"dns":{}}`,
		"0.1.0": `{"cniVersion":"0.1.0","ip4":{"ip":"10.9.8.7/32"},"dns":{}}`,
		"":      `{"cniVersion":"0.2.0","ip4":{"ip":"10.9.8.7/32"},"dns":{}}`,
	} {
		t.Run("Network/39 "+version, func(t *testing.T) {
			t.Parallel()
			_, stdout, _ := run(t, &recorder{}, `{"cniVersion":"`+version+`"}`, nil)
			var compact bytes.Buffer
			if err := json.Compact(&compact, []byte(stdout)); err != nil {
				t.Fatalf("%v in %q", err, stdout)
			}
			if compact.String() != want {
				t.Errorf("result\n%s, want\n%s", compact.String(), want)
			}
		})
	}
}

func TestErrorObject(t *testing.T) {
	t.Parallel()
	executed := &types.Error{Code: 42, Msg: "no", Details: "because"}
	for name, test := range map[string]struct {
		plugin *recorder
		stdin  string
		code   cnierr.Code
		parts  []string
	}{
		"empty":                 {&recorder{}, ``, cnierr.Undecodable, []string{"empty"}},
		"not JSON":              {&recorder{}, `{`, cnierr.Undecodable, []string{"stdin"}},
		"an array":              {&recorder{}, `[]`, cnierr.InvalidConfiguration, nil},
		"version not a string":  {&recorder{}, `{"cniVersion":1}`, cnierr.InvalidConfiguration, []string{"cniVersion", "1"}},
		"coded":                 {&recorder{err: cnierr.New(cnierr.NameTaken, "taken")}, minimal, cnierr.NameTaken, []string{"taken"}},
		"no code":               {&recorder{err: errors.New("odd")}, minimal, cnierr.Unclassified, []string{"odd"}},
		"of an executed plugin": {&recorder{err: cnierr.Wrap(cnierr.Unclassified, executed, "IPAM")}, minimal, 42, []string{"IPAM", "no"}},
		"panic":                 {&recorder{boom: "kaput"}, minimal, cnierr.Internal, []string{"kaput"}},
	} {
		t.Run("Network/68 "+name, func(t *testing.T) {
			t.Parallel()
			exit, stdout, _ := run(t, test.plugin, test.stdin, nil)
			if exit != 1 {
				t.Errorf("exit %d, want 1", exit)
			}
			wantError(t, stdout, test.code, "1.1.0", test.parts...)
		})
	}
	t.Run("Network/68 a configuration without version", func(t *testing.T) {
		t.Parallel()
		_, stdout, _ := run(t, &recorder{err: errors.New("odd")}, `{"name":"net"}`, nil)
		wantError(t, stdout, cnierr.Unclassified, "0.2.0", "odd")
	})
	t.Run("stdin unreadable", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		env := map[string]string{"CNI_COMMAND": "STATUS", "CNI_PATH": "/bin"}
		exit := Run(context.Background(), Process{
			Getenv: func(name string) string { return env[name] },
			Stdin:  iotest.ErrReader(errors.New("broken pipe")), Stdout: &out, Stderr: &bytes.Buffer{},
		}, &recorder{})
		if exit != 1 {
			t.Errorf("exit %d, want 1", exit)
		}
		wantError(t, out.String(), cnierr.InputOutput, "1.1.0", "broken pipe")
	})
}

func TestArgsAndEnviron(t *testing.T) {
	t.Parallel()
	plugin := &recorder{}
	run(t, plugin, minimal, map[string]string{"CNI_ARGS": "FOO=1", "CNI_NETNS_OVERRIDE": "TRUE"})
	if plugin.call.Args != "IgnoreUnknown=1;FOO=1" || !plugin.call.NetnsOverride {
		t.Errorf("call %+v", plugin.call)
	}
	deletion := *plugin.call
	deletion.Verb, deletion.Netns = Del, ""
	got := deletion.Environ([]string{"PATH=/p", "CNI_COMMAND=ADD", "CNI_NETNS=/old", "CNI_OTHER=x"})
	want := []string{"PATH=/p", "CNI_OTHER=x", "CNI_COMMAND=DEL", "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0",
		"CNI_ARGS=IgnoreUnknown=1;FOO=1", "CNI_PATH=/bin", "CNI_NETNS_OVERRIDE=1"}
	if !slices.Equal(got, want) {
		t.Errorf("environ %q, want %q", got, want)
	}
}
