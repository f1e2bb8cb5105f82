package netconf

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		members string
		code    cnierr.Code // 0: valid
		parts   []string
	}{
		{"veth", `"device_type":"veth"`, 0, nil},
		{"netkit", `"device_type":"netkit"`, 0, nil},
		{"Network/11 unknown device type", `"device_type":"tap"`, cnierr.UnsupportedField, []string{"device_type", `"tap"`}},
		{"no data plane", `"dataplane_options":{}`, 0, nil},
		{"external data plane", `"dataplane_options":{"type":"grpc","socket":"/run/s"}`, 0, nil},
		{"Network/55 unknown data plane", `"dataplane_options":{"type":"vpp"}`, cnierr.UnsupportedField, []string{"dataplane_options.type", `"vpp"`}},
		{"Network/55 data plane of the wrong type", `"dataplane_options":{"type":1}`, cnierr.InvalidConfiguration, []string{"dataplane_options.type", "found 1"}},
		{"Network/55 grpc without socket", `"dataplane_options":{"type":"grpc"}`, cnierr.InvalidConfiguration, []string{"dataplane_options.socket"}},
		{"Network/55 grpc with a socket that is no string", `"dataplane_options":{"type":"grpc","socket":7}`, cnierr.InvalidConfiguration, []string{"found 7"}},
		{"Network/51 negative timeout", `"policy_setup_timeout_seconds":-1`, cnierr.InvalidConfiguration, []string{"policy_setup_timeout_seconds", "-1"}},
		{"negative verb timeout", `"timeout_seconds":-5`, cnierr.InvalidConfiguration, []string{"timeout_seconds: -5"}},
		{"endless verb timeout", `"timeout_seconds":9000000000`, cnierr.InvalidConfiguration, []string{"timeout_seconds"}},
		{"readiness gates", `"readiness_gates":["http://127.0.0.1:9099/readiness","https://h"]`, 0, nil},
		{"Network/13 malformed URL", `"readiness_gates":["http://h","http://[::1"]`, cnierr.InvalidConfiguration, []string{"readiness_gates[1]", "http://[::1"}},
		{"Network/13 relative URL", `"readiness_gates":["/readiness"]`, cnierr.InvalidConfiguration, []string{"readiness_gates[0]", `"/readiness"`}},
		{"Network/13 URL without scheme", `"readiness_gates":["127.0.0.1:9099"]`, cnierr.InvalidConfiguration, []string{"readiness_gates[0]"}},
		{"bad nodename", `"nodename":"-n1"`, cnierr.InvalidConfiguration, []string{"nodename", `"-n1"`, "letter or a digit at both ends"}},
		{"bad hostname", `"hostname":"n/1"`, cnierr.InvalidConfiguration, []string{"hostname"}},
		{"placeholder", `"nodename":"__KUBERNETES_NODE_NAME__"`, cnierr.InvalidConfiguration, []string{"nodename is still a placeholder"}},
		{"placeholder for a boolean", `"windows_loopback_DSR":"__DSR_SUPPORT__"`, cnierr.InvalidConfiguration, []string{"windows_loopback_DSR is still a placeholder"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := parse(t, with(tt.members)).Validate()
			if tt.code == 0 {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			wantError(t, err, tt.code, tt.parts...)
		})
	}
}

func TestPlaceholders(t *testing.T) {
	t.Parallel()
	conf := parse(t, with(`"nodename":"__KUBERNETES_NODE_NAME__","log_file_path":"<path>","mode":"__MODE__",
		"mtu":"__CNI_MTU__","readiness_gates":["http://__HOST__:9099","http://h"],"own":{"deep":["__A_1__"]},
		"runtimeConfig":{"x":"__X__"},"args":{"x":"<x>"},"prevResult":{"x":"__X__"},
		"log_level":"info__","ipam_lock_file":"/__pycache__/x","vxlan_mac_prefix":"a<b>"`))
	want := []string{"log_file_path", "mode", "mtu", "nodename", "own.deep[0]", "readiness_gates[0]"}
	if !slices.Equal(conf.Placeholders, want) {
		t.Errorf("Placeholders = %q, want %q", conf.Placeholders, want)
	}
	if conf.Nodename != "" || conf.LogFilePath != "" || conf.Mode != "" || conf.MTU != 0 || !slices.Equal(conf.ReadinessGates, []string{"http://h"}) {
		t.Errorf("a placeholder does not count as absent in %+v", conf)
	}
	if conf.NamesNode() {
		t.Error("a placeholder names the node")
	}
}

func TestExternalDataplane(t *testing.T) {
	t.Parallel()
	if _, _, ok := parse(t, minimal).ExternalDataplane(); ok {
		t.Error("no data plane configured, but one found")
	}
	socket, options, ok := parse(t, with(`"dataplane_options":{"type":"grpc","socket":"/run/s","a":"b","n":1}`)).ExternalDataplane()
	want := map[string]string{"type": "grpc", "socket": "/run/s", "a": "b"}
	if !ok || socket != "/run/s" || !maps.Equal(options, want) {
		t.Errorf("got %q, %v, %v", socket, options, ok)
	}
}

func TestNodeName(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name             string
		members, file, o string
		want             string
	}{
		{"Network/7 nodename beats all", `"nodename":"conf","hostname":"old"`, "file", "os", "conf"},
		{"Network/7 file beats hostname", `"hostname":"old"`, "file", "os", "file"},
		{"Network/7 hostname beats OS", `"hostname":"old"`, "", "os", "old"},
		{"Network/7 OS last, lower-cased", `"mtu":0`, "", " Worker-B ", "worker-b"},
		{"Network/8 file with trailing newline", `"mtu":0`, "worker-b\r\n", "os", "worker-b"},
		{"blank file falls through", `"mtu":0`, " \n", "os", "os"},
		{"nodename is trimmed and keeps its case", `"nodename":" Conf "`, "file", "os", "Conf"},
		{"placeholder falls through", `"nodename":"__KUBERNETES_NODE_NAME__"`, "file", "os", "file"},
		{"one character", `"nodename":"7"`, "", "", "7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(t, with(tt.members)).NodeName(tt.file, tt.o)
			if err != nil || got != tt.want {
				t.Errorf("NodeName = %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestNodeNameRefuses(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"-n", "n-", "n/1", "n 1", ".n", strings.Repeat("n", 254), "ñ"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(t, with(fmt.Sprintf(`"nodename":%q`, name))).NodeName("file", "os")
			wantError(t, err, cnierr.InvalidConfiguration, "key nodename", "1 to 253 letters")
		})
	}
	conf := parse(t, minimal)
	_, err := conf.NodeName("a\nb", "os")
	wantError(t, err, cnierr.InvalidConfiguration, "/var/lib/calico/nodename")
	_, err = conf.NodeName("", "")
	wantError(t, err, cnierr.InvalidConfiguration, "no name for this node")
}

func TestPools(t *testing.T) {
	t.Parallel()
	conf := parse(t, with(`"pools":[{"cidr":"10.77.0.0/16"},{"cidr":"FD00:77:1::/112","natOutgoing":true},
		{"name":"small","cidr":"10.78.0.0/28","disabled":true},{"cidr":"10.79.0.0/24","blockSize":29}]`))
	if err := conf.Validate(); err != nil {
		t.Fatal(err)
	}
	want := []Pool{
		{Name: "10-77-0-0-16", CIDR: "10.77.0.0/16", BlockSize: 26},
		{Name: "fd00-77-1---112", CIDR: "FD00:77:1::/112", BlockSize: 122, NATOutgoing: true},
		{Name: "small", CIDR: "10.78.0.0/28", BlockSize: 28, Disabled: true},
		{Name: "10-79-0-0-24", CIDR: "10.79.0.0/24", BlockSize: 29},
	}
	if !slices.Equal(conf.Pools, want) {
		t.Errorf("got %+v\nwant %+v", conf.Pools, want)
	}
}

func TestPoolsRefused(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, pools, part string }{
		{"no CIDR", `{}`, "pools[0].cidr"},
		{"address", `{"cidr":"10.77.0.0"}`, `"10.77.0.0" is not a CIDR`},
		{"mapped", `{"cidr":"::ffff:10.77.0.0/112"}`, "is not a CIDR"},
		{"host bits", `{"cidr":"10.77.0.1/16"}`, `write "10.77.0.0/16"`},
		{"bad name", `{"cidr":"10.77.0.0/16","name":"My_Pool"}`, "pools[0].name"},
		{"block too large", `{"cidr":"10.0.0.0/8","blockSize":19}`, "from 20 to 32"},
		{"block larger than pool", `{"cidr":"10.77.0.0/24","blockSize":23}`, "from 24 to 32"},
		{"IPv6 block", `{"cidr":"fd00::/64","name":"six","blockSize":64}`, "from 116 to 128"},
		{"negative block", `{"cidr":"10.77.0.0/24","blockSize":-1}`, "pools[0].blockSize"},
		{"bad selector", `{"cidr":"10.77.0.0/16","nodeSelector":"rack =="}`, "pools[0].nodeSelector: selector"},
		{"global selector", `{"cidr":"10.77.0.0/16","nodeSelector":"global()"}`, "use all()"},
		{"same name", `{"cidr":"10.1.0.0/16","name":"a"},{"cidr":"10.2.0.0/16","name":"a"}`, "also the name of pools[0]"},
		{"overlap", `{"cidr":"10.0.0.0/8"},{"cidr":"10.2.0.0/16"}`, "pools[1].cidr: 10.2.0.0/16 overlaps 10.0.0.0/8 of pools[0]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wantError(t, parse(t, with(`"pools":[`+tt.pools+`]`)).Validate(), cnierr.InvalidConfiguration, tt.part)
		})
	}
}

func TestIPAMFamilies(t *testing.T) {
	t.Parallel()
	tests := []struct {
		v4, v6       string
		want4, want6 bool
		name         string
	}{
		{"", "", true, false, "default"},
		{"false", "true", false, true, "both set"},
		{"False", "True", true, false, "other spellings do not count"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ipam := IPAM{AssignIPv4: tt.v4, AssignIPv6: tt.v6}
			if ipam.AssignsIPv4() != tt.want4 || ipam.AssignsIPv6() != tt.want6 {
				t.Errorf("assigns %v, %v", ipam.AssignsIPv4(), ipam.AssignsIPv6())
			}
		})
	}
}

func TestRouteDestinations(t *testing.T) {
	t.Parallel()
	hostLocal := func(routes string) IPAM {
		return parse(t, `{"name":"n","ipam":{"type":"host-local","routes":`+routes+`}}`).IPAM
	}
	got, err := hostLocal(`[{"dst":"10.1.2.3/16","gw":"10.0.0.1"},{"gw":"10.0.0.1"},{"dst":"::/0"}]`).RouteDestinations()
	if err != nil || fmt.Sprint(got) != "[10.1.0.0/16 ::/0]" {
		t.Errorf("Network/41 gw ignored: got %v, %v", got, err)
	}
	for routes, part := range map[string]string{
		`[{"dst":"0.0.0.0/0"},{"dst":7}]`: "ipam.routes[1].dst: want a string, found 7",
		`[{"dst":"10.0.0.0"}]`:            `"10.0.0.0" is not a CIDR`,
		`"x"`:                             "ipam.routes: want a list of objects, found a string",
		`["x"]`:                           "ipam.routes[0]: want an object, found a string",
	} {
		t.Run("Network/41 bad dst "+routes, func(t *testing.T) {
			t.Parallel()
			_, err := hostLocal(routes).RouteDestinations()
			wantError(t, err, cnierr.InvalidConfiguration, part)
		})
	}
	for _, routes := range []string{"null", "[]"} {
		if got, err := hostLocal(routes).RouteDestinations(); len(got) != 0 || err != nil {
			t.Errorf("routes %s: %v, %v", routes, got, err)
		}
	}
}
