package netconf

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
)

// minimal is a configuration without anything optional; members are added by with.
const minimal = `{"cniVersion":"1.1.0","name":"k8s-pod-network","type":"calico","ipam":{"type":"calico-ipam"}}`

// with is the minimal configuration with further members; a repeated one
// replaces the first.
func with(members string) string {
	return strings.TrimSuffix(minimal, "}") + "," + members + "}"
}

func parse(t *testing.T, stdin string) *Config {
	t.Helper()
	conf, err := Parse([]byte(stdin))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return conf
}

func wantError(t *testing.T, err error, code cnierr.Code, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if got := cnierr.CodeOf(err); got != code {
		t.Errorf("code %d, want %d: %v", got, code, err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not contain %q", err, part)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		stdin string
		code  cnierr.Code
		parts []string
	}{
		{"empty stdin", " \n", cnierr.Undecodable, []string{"empty"}},
		{"not JSON", `{"name":`, cnierr.Undecodable, []string{"not JSON"}},
		{"unquoted placeholder", `{"mtu": __CNI_MTU__}`, cnierr.Undecodable, []string{"byte 9"}},
		{"trailing text", minimal + "}", cnierr.Undecodable, []string{"text follows"}},
		{"not an object", `["a"]`, cnierr.InvalidConfiguration, []string{"want an object, found a list"}},
		{"null", `null`, cnierr.InvalidConfiguration, []string{"found null"}},
		{"Network/3 version 1.2.0", with(`"cniVersion":"1.2.0"`), cnierr.UnsupportedVersion, []string{`"1.2.0"`, "1.1.0"}},
		{"Network/3 version x", with(`"cniVersion":"x"`), cnierr.UnsupportedVersion, []string{`"x"`}},
		{"version of the wrong type", with(`"cniVersion":1`), cnierr.InvalidConfiguration, []string{"cniVersion: want a string, found 1"}},
		{"version before everything else", with(`"cniVersion":"2.0.0","mtu":"x"`), cnierr.UnsupportedVersion, nil},
		{"Network/4 missing name", `{"type":"calico","ipam":{"type":"calico-ipam"}}`, cnierr.InvalidConfiguration, []string{"key name is missing"}},
		{"Network/4 name a b", with(`"name":"a b"`), cnierr.InvalidConfiguration, []string{`"a b"`}},
		{"missing ipam", `{"name":"n"}`, cnierr.InvalidConfiguration, []string{"ipam.type is missing"}},
		{"missing ipam type", `{"name":"n","ipam":{}}`, cnierr.InvalidConfiguration, []string{"ipam.type is missing"}},
		{"ipam of the wrong type", `{"name":"n","ipam":"calico-ipam"}`, cnierr.InvalidConfiguration, []string{"ipam: want an object, found a string"}},
		{"string key with a boolean", `{"name":"n","ipam":{"type":"calico-ipam","assign_ipv4":true}}`, cnierr.InvalidConfiguration,
			[]string{"ipam.assign_ipv4: want a string, found true"}},
		{"number in quotes", with(`"mtu":"1500"`), cnierr.InvalidConfiguration, []string{"mtu: want a whole number, found a string: remove the quotes"}},
		{"fraction", with(`"mtu":1500.5`), cnierr.InvalidConfiguration, []string{"found 1500.5"}},
		{"negative VNI", with(`"vxlan_vni":-1`), cnierr.InvalidConfiguration, []string{"vxlan_vni: want a whole number, not negative, found -1"}},
		{"boolean in quotes", with(`"require_mtu_file":"true"`), cnierr.InvalidConfiguration, []string{"want true or false", "remove the quotes"}},
		{"Network/13 a string instead of a list", with(`"readiness_gates":"http://127.0.0.1:9099"`), cnierr.InvalidConfiguration,
			[]string{"readiness_gates: want a list of strings, found a string: put it in [ ]"}},
		{"element of a list", with(`"readiness_gates":["http://a",7]`), cnierr.InvalidConfiguration, []string{"readiness_gates[1]: want a string, found 7"}},
		{"deep path", with(`"args":{"org.apache.mesos":{"network_info":{"labels":{"labels":[{"key":1}]}}}}`), cnierr.InvalidConfiguration,
			[]string{"args.org.apache.mesos.network_info.labels.labels[0].key"}},
		{"other case, canonical path", with(`"MTU":true`), cnierr.InvalidConfiguration, []string{"key mtu: want"}},
		{"one key spelled twice", with(`"MTU":1500,"mtu":1400`), cnierr.InvalidConfiguration, []string{"MTU and mtu are the same key"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(tt.stdin))
			wantError(t, err, tt.code, tt.parts...)
		})
	}
}

func TestParseErrorsShowNoCredential(t *testing.T) {
	t.Parallel()
	for _, stdin := range []string{
		with(`"policy":{"k8s_auth_token":271828}`),
		with(`"policy":{"k8s_auth_token":["271828"]}`),
		with(`"mtu":"271828x"`),
		with(`"readiness_gates":["http://user:271828@[::1"]`),
		with(`"readiness_gates":["ftp://user:271828@host/x?token=271828"]`),
	} {
		problems, _ := Problems([]byte(stdin))
		if len(problems) == 0 {
			t.Errorf("no problem in %s", stdin)
		}
		for _, err := range problems {
			if strings.Contains(err.Error(), "271828") {
				t.Errorf("error shows a value: %v", err)
			}
		}
	}
	conf := parse(t, with(`"policy":{"k8s_auth_token":"s3cret"}`))
	if conf.Policy.AuthToken != "s3cret" || conf.Policy.AuthToken.String() == "s3cret" || conf.Policy.AuthToken.GoString() == "s3cret" {
		t.Error("a credential must be kept and not shown")
	}
	for _, verb := range []string{"%v", "%+v", "%#v"} {
		if strings.Contains(fmt.Sprintf(verb, conf)+fmt.Sprintf(verb, *conf), "s3cret") {
			t.Errorf("Network/56 %s of a configuration shows a credential", verb)
		}
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for _, version := range Versions() {
		t.Run("Network/3 version "+version, func(t *testing.T) {
			t.Parallel()
			if conf := parse(t, with(`"cniVersion":"`+version+`"`)); conf.CNIVersion != version {
				t.Errorf("CNIVersion = %q", conf.CNIVersion)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	conf, problems := load([]byte(`{"name":"n","type":"calico","ipam":{"type":"calico-ipam"},"prevResult":null}`), "linux")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := &Config{
		CNIVersion:      "0.1.0",
		Name:            "n",
		Type:            "calico",
		LogConfig:       LogConfig{LogLevel: "info", LogFileMaxSize: 10, LogFileMaxAge: 30, LogFileMaxCount: 3},
		DatastoreConfig: DatastoreConfig{EmbeddedFile: "/var/lib/calico/cni/datastore.db"},
		NodeConfig:      NodeConfig{NodenameFile: "/var/lib/calico/nodename"},
		InterfaceConfig: InterfaceConfig{NumQueues: 1, DeviceType: "veth", EndpointStatusDir: "/var/run/calico/endpoint-status"},
		WindowsConfig:   WindowsConfig{VXLANVNI: 4096, VXLANMACPrefix: "0E-2A"},
		IPAM:            IPAM{Type: "calico-ipam"},
		IPAMLockFile:    "/var/run/calico/ipam.lock",
		TimeoutSeconds:  90,
	}
	conf.document = nil
	if !reflect.DeepEqual(conf, want) {
		t.Errorf("got  %+v\nwant %+v", conf, want)
	}
	if conf.Timeout() != 90*time.Second {
		t.Errorf("Timeout = %v", conf.Timeout())
	}
}

func TestDefaultPathsOnWindows(t *testing.T) {
	t.Parallel()
	conf, _ := load([]byte(minimal), "windows")
	if conf.IPAMLockFile != `c:\CalicoWindows\ipam.lock` || conf.EmbeddedFile != `c:\CalicoWindows\cni\datastore.db` {
		t.Errorf("paths %q, %q", conf.IPAMLockFile, conf.EmbeddedFile)
	}
}

func TestParseReadsEveryKey(t *testing.T) {
	t.Parallel()
	conf := parse(t, with(`"Log_Level":"debug","num_queues":4,"device_type":"netkit","MTU":1450,"hostname":"old",
		"kubernetes":{"kubeconfig":"/k","node_name":"n9"},"feature_control":{"floating_ips":true},
		"container_settings":{"allow_ip_forwarding":true},"windows_loopback_dsr":true,"timeout_seconds":5,
		"policies":[{"name":"EndpointPolicy","value":{"Type":"OutBoundNAT"}}],"prevResult":{"ips":[]},
		"pools":[{"cidr":"10.77.0.0/16"}],"status_reports_exhaustion":true,"disableGC":true`))
	checks := []struct {
		name string
		ok   bool
	}{
		{"key of another case", conf.LogLevel == "debug" && conf.MTU == 1450 && conf.LoopbackDSR},
		{"Network/11 queues", conf.NumQueues == 4},
		{"device", conf.DeviceType == DeviceNetkit},
		{"nested", conf.Kubernetes.Kubeconfig == "/k" && conf.Kubernetes.NodeName == "n9"},
		{"feature control", conf.FeatureControl.FloatingIPs && !conf.FeatureControl.IPAddrsNoIPAM},
		{"container settings", conf.ContainerSettings.AllowIPForwarding},
		{"timeout", conf.Timeout() == 5*time.Second},
		{"policies", len(conf.Policies) == 1 && conf.Policies[0].Name == "EndpointPolicy" && string(conf.Policies[0].Value) == `{"Type":"OutBoundNAT"}`},
		{"previous result", string(conf.PrevResult) == `{"ips":[]}`},
		{"switches", conf.StatusReportsExhaustion && conf.DisableGC},
		{"pools", len(conf.Pools) == 1},
	}
	for _, tt := range checks {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if !tt.ok {
				t.Errorf("wrong in %+v", conf)
			}
		})
	}
}

func TestQueues(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"0", "-1", "null"} {
		t.Run("Network/11 num_queues "+value+" becomes 1", func(t *testing.T) {
			t.Parallel()
			if conf := parse(t, with(`"num_queues":`+value)); conf.NumQueues != 1 {
				t.Errorf("NumQueues = %d", conf.NumQueues)
			}
		})
	}
}

func TestProblemsFindsAllAtOnce(t *testing.T) {
	t.Parallel()
	problems, warnings := Problems([]byte(`{"cniVersion":"9","name":"a b","mtu":"x","num_queues":true,"nodenam":"n1",
		"device_type":"tap","log_level":"__LOG_LEVEL__","ipam":{"assign_ipv6":true}}`))
	wants := []string{"cniVersion", "ipam.assign_ipv6", "mtu", "num_queues", `"a b"`, "ipam.type", "log_level", "device_type"}
	if len(problems) != len(wants) {
		t.Fatalf("got %d problems, want %d: %v", len(problems), len(wants), problems)
	}
	for i, want := range wants {
		if !strings.Contains(problems[i].Error(), want) {
			t.Errorf("problem %d is %q, want it to name %q", i, problems[i], want)
		}
	}
	if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, `did you mean "nodename"`) }) {
		t.Errorf("no suggestion in %q", warnings)
	}
	if problems, _ := Problems([]byte(`[`)); len(problems) != 1 {
		t.Errorf("problems of what is not JSON: %v", problems)
	}
	if problems, warnings := Problems([]byte(minimal)); len(problems)+len(warnings) != 0 {
		t.Errorf("a good configuration has %v, %q", problems, warnings)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		stdin string
		want  []string
	}{
		{"misspelled", with(`"nodenam":"n1"`), []string{`"nodenam": did you mean "nodename"`}},
		{"misspelled, nested", with(`"kubernetes":{"kubecfg":"","kubeconfg":""}`), []string{`"kubernetes.kubeconfg": did you mean "kubeconfig"`}},
		{"misspelled in ipam", `{"name":"n","type":"c","ipam":{"type":"calico-ipam","asign_ipv4":"true"}}`, []string{`"ipam.asign_ipv4": did you mean "assign_ipv4"`}},
		{"unknown, far from all", with(`"frobnicate":1`), nil},
		{"foreign IPAM plugin", `{"name":"n","type":"c","ipam":{"type":"whereabouts","range":"10.0.0.0/8"}}`, nil},
		{"runtime's keys", with(`"runtimeConfig":{"ips":[],"portMappings":[]},"args":{"cni":{}},"capabilities":{"dns":true}`), nil},
		{"other case is no misspelling", with(`"NodeName":"n1"`), nil},
		{"deprecated", with(`"hostname":"n1"`), []string{`"hostname" is deprecated`}},
		{"no type", `{"name":"n","ipam":{"type":"host-local"}}`, []string{`"type" is missing`}},
		{"neither true nor false", `{"name":"n","type":"c","ipam":{"type":"calico-ipam","assign_ipv4":"no","assign_ipv6":"True"}}`,
			[]string{"ipam.assign_ipv4", "ipam.assign_ipv6"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := parse(t, tt.stdin).Warnings
			if len(got) != len(tt.want) {
				t.Fatalf("got %q, want %d", got, len(tt.want))
			}
			for i, want := range tt.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("warning %q does not contain %q", got[i], want)
				}
			}
		})
	}
}

func TestEditDistance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"mtu", "mtu", 0}, {"mtu", "mut", 2}, {"mtu", "mtus", 1}, {"mtu", "tu", 1}, {"mtu", "mxu", 1},
		{"nodename", "node_name", 1}, {"a", "abcd", 3}, {"kitten", "sitting", 3},
	} {
		if got := editDistance(tt.a, tt.b); got != tt.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestPodDNS(t *testing.T) {
	t.Parallel()
	const dns = `"dns":{"nameservers":["10.96.0.10"],"domain":"cluster.local","search":["svc"],"options":["ndots:5"]}`
	tests := []struct{ name, stdin, want string }{
		{"Network/62 runtime with a server replaces all four", with(dns + `,"runtimeConfig":{"dns":{"servers":["1.1.1.1"],"searches":["a"]}}`),
			`{"nameservers":["1.1.1.1"],"search":["a"]}`},
		{"Network/62 runtime without a server", with(dns + `,"runtimeConfig":{"dns":{"searches":["a"]}}`),
			`{"nameservers":["10.96.0.10"],"domain":"cluster.local","search":["svc"],"options":["ndots:5"]}`},
		{"none", minimal, `{}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := json.Marshal(parse(t, tt.stdin).PodDNS())
			if err != nil || string(got) != tt.want {
				t.Errorf("PodDNS = %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

// TestKeysAreDistinct: a key is found without regard to case, so no two may
// differ only in it.
func TestKeysAreDistinct(t *testing.T) {
	t.Parallel()
	known := slices.Sorted(func(yield func(string) bool) {
		for name := range members(reflect.TypeFor[Config]()) {
			if !yield(strings.ToLower(name)) {
				return
			}
		}
	})
	if distinct := slices.Compact(slices.Clone(known)); len(distinct) != len(known) {
		t.Errorf("keys that differ only in case among %q", known)
	}
}

// FuzzParse: whatever Parse accepts means the same after a round trip through
// the document that IPAM gets.
func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(with(`"mtu":"x","nodenam":"__X__","ipam":{"type":1}`)))
	f.Fuzz(func(t *testing.T, stdin []byte) {
		Problems(stdin)
		conf, err := Parse(stdin)
		if err != nil {
			return
		}
		body, err := conf.Document().Bytes()
		if err != nil {
			t.Fatalf("encoding what was parsed: %v", err)
		}
		again, err := Parse(body)
		if err != nil {
			t.Fatalf("parsing what was written: %v", err)
		}
		if !reflect.DeepEqual(again, conf) {
			t.Errorf("round trip of %q\ngot  %+v\nwant %+v", stdin, again, conf)
		}
	})
}
