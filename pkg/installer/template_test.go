package installer

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	calicocni "calico-cni"
	"calico-cni/pkg/netconf"
)

// rendered is the built-in template, or another one, for a host.
func rendered(t *testing.T, template string, v variables, host Host) ([]byte, error) {
	t.Helper()
	s := mustRead(t, v, host)
	return render(template, s.withPaths(assets{"etcd-ca": nil, "etcd-cert": nil, "etcd-key": nil}, "the-token"), host.GOOS)
}

// parsed is a rendered configuration.
func parsed(t *testing.T, template string, v variables, host Host) map[string]any {
	t.Helper()
	body, err := rendered(t, template, v, host)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inspect(body); err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	var out map[string]any
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	return out
}

// plugin is the n-th plugin of a list.
func plugin(t *testing.T, list map[string]any, n int) map[string]any {
	t.Helper()
	plugins, _ := list["plugins"].([]any)
	if n >= len(plugins) {
		t.Fatalf("the list has no plugin %d: %v", n, list)
	}
	return plugins[n].(map[string]any)
}

// windowsKeys are those of network plugin contract 2.5 that a template has.
var windowsKeys = []string{
	"mode", "vxlan_vni", "vxlan_mac_prefix", "windows_use_single_network", "windows_disable_host_subnet_nat_exclusion",
	"windows_disable_default_deny_all_policy", "windows_loopback_DSR", "windows_pod_deletion_timestamp_timeout", "policies", "dns",
}

func TestBuiltInLinux(t *testing.T) {
	t.Parallel()
	for _, kind := range []netconf.DatastoreKind{netconf.KubernetesAPI, netconf.Etcd} {
		list := parsed(t, calicocni.ConfigTemplate, variables{"DATASTORE_TYPE": string(kind), "ETCD_ENDPOINTS": "https://192.0.2.1:2379"}, linuxHost)
		if list["name"] != "k8s-pod-network" || list["cniVersion"] != "1.0.0" || !reflect.DeepEqual(list["cniVersions"], []any{"1.0.0", "1.1.0"}) {
			t.Errorf("%s: %v", kind, list)
		}
		calico, portmap := plugin(t, list, 0), plugin(t, list, 1)
		for _, key := range windowsKeys {
			if _, has := calico[key]; has {
				t.Errorf("%s: key %s is for Windows", kind, key)
			}
		}
		if portmap["type"] != "portmap" || portmap["snat"] != true || !reflect.DeepEqual(portmap["capabilities"], map[string]any{"portMappings": true}) {
			t.Errorf("%s: %v", kind, portmap)
		}
		conf := configuration(t, calico)
		if conf.Policy.Type != "k8s" || conf.IPAM.Type != "calico-ipam" || conf.MTU != 1500 ||
			conf.Kubernetes.Kubeconfig != "/etc/cni/net.d/calico-kubeconfig" || conf.Nodename != "worker-b" ||
			conf.EtcdKeyFile != "/etc/cni/net.d/calico-tls/etcd-key" || conf.CalicoAPIGroup != "crd.projectcalico.org/v1" {
			t.Errorf("%s: %+v", kind, conf)
		}
		choice, err := netconf.Datastore(conf, func(string) string { return "" }, func(string) bool { return false })
		if err != nil || choice.Kind != kind {
			t.Errorf("%s: the datastore is %v, %v", kind, choice.Kind, err)
		}
	}
}

func configuration(t *testing.T, plugin map[string]any) *netconf.Config {
	t.Helper()
	plugin = maps.Clone(plugin)
	plugin["name"], plugin["cniVersion"] = "net", "1.0.0"
	text, err := json.Marshal(plugin)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := netconf.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(conf.Warnings) > 0 {
		t.Errorf("warnings: %v", conf.Warnings)
	}
	return conf
}

func TestBuiltInWindows(t *testing.T) {
	t.Parallel()
	t.Run("Network/61 several service CIDRs", func(t *testing.T) {
		t.Parallel()
		list := parsed(t, calicocni.ConfigTemplate, variables{
			"KUBERNETES_SERVICE_CIDRS": "10.96.0.0/12, 10.200.0.0/16,10.201.0.7", "KUBERNETES_DNS_SERVERS": "10.96.0.10,10.96.0.11",
		}, windowsHost)
		calico := plugin(t, list, 0)
		if list["name"] != "Calico" || len(list["plugins"].([]any)) != 1 {
			t.Errorf("%v", list)
		}
		for _, key := range windowsKeys {
			if _, has := calico[key]; !has {
				t.Errorf("key %s is missing", key)
			}
		}
		route := func(prefix string) any {
			return map[string]any{"Name": "EndpointPolicy", "Value": map[string]any{"Type": "SDNROUTE", "DestinationPrefix": prefix, "NeedEncap": true}}
		}
		want := []any{
			map[string]any{"Name": "EndpointPolicy", "Value": map[string]any{"Type": "OutBoundNAT", "ExceptionList": []any{"10.96.0.0/12", "10.200.0.0/16", "10.201.0.7/32"}}},
			route("10.96.0.0/12"), route("10.200.0.0/16"), route("10.201.0.7/32"),
		}
		if !reflect.DeepEqual(calico["policies"], want) {
			t.Errorf("policies: %v", calico["policies"])
		}
		if servers := calico["dns"].(map[string]any)["nameservers"]; !reflect.DeepEqual(servers, []any{"10.96.0.10", "10.96.0.11"}) {
			t.Errorf("nameservers: %v", servers)
		}
		conf := configuration(t, calico)
		if conf.Mode != "vxlan" || conf.VXLANVNI != 4096 || !conf.UseSingleNetwork || conf.DisableHostSubnetNATExclusion ||
			conf.DisableDefaultDenyAllPolicy || !conf.LoopbackDSR || conf.VXLANMACPrefix != "0E-2A" ||
			conf.NodenameFile != "c:/var/run/calico/nodename" || conf.Kubernetes.Kubeconfig != "c:/etc/cni/net.d/calico-kubeconfig" ||
			conf.LogFilePath != "c:/var/log/calico/cni/cni.log" || conf.Nodename != "win-3" {
			t.Errorf("%+v", conf)
		}
	})
	t.Run("Network/61 one service CIDR by default", func(t *testing.T) {
		t.Parallel()
		calico := plugin(t, parsed(t, calicocni.ConfigTemplate, nil, windowsHost), 0)
		if policies := calico["policies"].([]any); len(policies) != 2 {
			t.Errorf("%v", policies)
		}
	})
}

// TestEditedTemplate: what an operator changes is what nodes get, and nothing
// else.
func TestEditedTemplate(t *testing.T) {
	t.Parallel()
	edited := calicocni.ConfigTemplate
	for _, edit := range [][2]string{
		{`"windows_use_single_network": true`, `"windows_use_single_network": false`},
		{`"windows_disable_host_subnet_nat_exclusion": false`, `"windows_disable_host_subnet_nat_exclusion": true`},
	} {
		if strings.Count(edited, edit[0]) != 1 {
			t.Fatalf("the template says %s not exactly once", edit[0])
		}
		edited = strings.Replace(edited, edit[0], edit[1], 1)
	}
	before, after := parsed(t, calicocni.ConfigTemplate, nil, windowsHost), parsed(t, edited, nil, windowsHost)
	calico := plugin(t, before, 0)
	calico["windows_use_single_network"], calico["windows_disable_host_subnet_nat_exclusion"] = false, true
	if !reflect.DeepEqual(before, after) {
		t.Errorf("rendered: %v", after)
	}
	if !reflect.DeepEqual(parsed(t, calicocni.ConfigTemplate, nil, linuxHost), parsed(t, edited, nil, linuxHost)) {
		t.Error("Linux nodes get another configuration too")
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	const list = `{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"x",%s}]}`
	for _, row := range []struct {
		name, member, want string
		host               Host
	}{
		{"plain text", `"a":"__LOG_LEVEL__"`, `{"a":"info"}`, linuxHost},
		{"within a text", `"a":"https://__KUBERNETES_SERVICE_HOST__:__KUBERNETES_SERVICE_PORT__/"`, `{"a":"https://192.0.2.1:6443/"}`, linuxHost},
		{"number", `"a":__CNI_MTU__`, `{"a":1500}`, linuxHost},
		{"number in quotes", `"a":"__CNI_MTU__"`, `{"a":1500}`, linuxHost},
		{"truth value in quotes", `"a":"__DSR_SUPPORT__"`, `{"a":true}`, windowsHost},
		{"truth value", `"a":__DSR_SUPPORT__`, `{"a":false}`, linuxHost},
		{"token", `"a":"__SERVICEACCOUNT_TOKEN__"`, `{"a":"the-token"}`, linuxHost},
		{"older name of the kubeconfig", `"a":"__KUBECONFIG__"`, `{"a":"c:/etc/cni/net.d/calico-kubeconfig"}`, windowsHost},
		{"older name of service CIDRs", `"a":["__K8S_SERVICE_CIDR__"]`, `{"a":["10.96.0.10/32"]}`, windowsHost},
		{"older name of service CIDRs, as one text", `"a":"__K8S_SERVICE_CIDR__"`, `{"a":"10.96.0.10/32"}`, windowsHost},
		{"older name of name servers", `"a":[__DNS_NAME_SERVERS__]`, `{"a":["10.96.0.10"]}`, windowsHost},
		{"route type", `"a":"__ROUTE_TYPE__"`, `{"a":"SDNROUTE"}`, windowsHost},
		{"a value that would end its text", `"a":"__ETCD_ENDPOINTS__"`, `{"a":"x\",\"b\":\"\\y"}`, linuxHost},
		{"a value like a placeholder", `"a":"__ETCD_DISCOVERY_SRV__"`, `{"a":"__LOG_LEVEL__"}`, linuxHost},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			v := variables{"KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_SERVICE_PORT": "6443",
				"ETCD_ENDPOINTS": `x","b":"\y`, "ETCD_DISCOVERY_SRV": "__LOG_LEVEL__"}
			got := plugin(t, parsed(t, strings.Replace(list, "%s", row.member, 1), v, row.host), 0)
			delete(got, "type")
			var want map[string]any
			if err := json.Unmarshal([]byte(row.want), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

// TestPlainTemplateStaysAsItIs: order and layout are the operator's.
func TestPlainTemplateStaysAsItIs(t *testing.T) {
	t.Parallel()
	const template = "{\"name\": \"n\",\n   \"type\":\"x\", \"big\": 12345678901234567890}\n"
	body, err := rendered(t, template, nil, linuxHost)
	if err != nil || string(body) != template {
		t.Errorf("%q, %v", body, err)
	}
}

func TestTemplatesThatCannotBeRendered(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, template, want string }{
		{"not JSON", "{\n\"name\": \"n\",\n\"secret\": \"__SERVICEACCOUNT_TOKEN__\" oops }", "from line 3 on"},
		{"cut off", `{"secret": "__SERVICEACCOUNT_TOKEN__"`, "not JSON"},
		{"empty", "", "not JSON"},
		{"a list", `["__SERVICEACCOUNT_TOKEN__"]`, "not a JSON object"},
		{"null", "null", "not a JSON object"},
		{"two objects", `{"type":"x"} {"secret": "__SERVICEACCOUNT_TOKEN__"}`, "not JSON"},
		{"for other systems only", `{"windows": {"secret": "__SERVICEACCOUNT_TOKEN__"}}`, `add the member "linux"`},
		{"member that is no object", `{"linux": ["__SERVICEACCOUNT_TOKEN__"]}`, `member "linux"`},
	} {
		t.Run("Network/57 "+row.name, func(t *testing.T) {
			t.Parallel()
			body, err := rendered(t, row.template, nil, linuxHost)
			if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "the-token") {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, want string }{
		{"one plugin", `{"name":"n","cniVersion":"1.0.0","type":"calico","ipam":{"type":"calico-ipam"}}`, ""},
		{"no plugins", `{"name":"n","plugins":[]}`, `"plugins"`},
		{"plugins that are none", `{"name":"n","plugins":["calico"]}`, "plugin 1"},
		{"versions that are none", `{"name":"n","cniVersions":"1.1.0","plugins":[{"type":"x"}]}`, `"cniVersions"`},
		{"plugin without type", `{"name":"n","plugins":[{"type":"x"},{}]}`, "plugin 2"},
		{"plugin whose type is a path", `{"name":"n","plugins":[{"type":"../calico"}]}`, "plugin 1"},
		{"placeholder that nothing fills in", `{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"calico","nodename":"__NODE__","ipam":{"type":"calico-ipam"}}]}`, "nodename"},
		{"value of a wrong type", `{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"calico","mtu":"big","ipam":{"type":"calico-ipam"}}]}`, "mtu"},
		{"list without name", `{"cniVersion":"1.0.0","plugins":[{"type":"calico","ipam":{"type":"calico-ipam"}}]}`, "name"},
		{"version that we do not know", `{"name":"n","cniVersion":"9.9.9","plugins":[{"type":"calico","ipam":{"type":"calico-ipam"}}]}`, "cniVersion"},
	} {
		_, err := inspect([]byte(row.text))
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	const text = `{
  "name": "n",
  "cniVersions": ["1.0.0", "1.1.0"],
  "plugins": [{"type": "calico", "cniVersions": "mine"}, {"type": "portmap"}]
}`
	list := conflist{versions: []string{"1.0.0", "1.1.0"}, plugins: []string{"calico", "portmap"}}
	for _, row := range []struct {
		name     string
		known    map[string][]string
		keeps    bool
		warnings int
	}{
		{"all know both", map[string][]string{"calico": {"1.0.0", "1.1.0"}, "portmap": {"1.1.0", "1.0.0"}}, true, 0},
		{"an old portmap", map[string][]string{"calico": {"1.0.0", "1.1.0"}, "portmap": {"1.0.0"}}, false, 1},
		{"a portmap that does not say", map[string][]string{"calico": {"1.0.0", "1.1.0"}}, false, 1},
		{"nobody says", nil, false, 2},
	} {
		body, warnings, err := settle([]byte(text), list, row.known)
		if err != nil || len(warnings) != row.warnings {
			t.Errorf("%s: %v, %v", row.name, warnings, err)
		}
		want := text
		if !row.keeps {
			want = strings.Replace(text, "\n  \"cniVersions\": [\"1.0.0\", \"1.1.0\"],", "", 1)
			if !strings.Contains(strings.Join(warnings, ""), "plugin portmap") {
				t.Errorf("%s: the plugin is not named: %v", row.name, warnings)
			}
		}
		if string(body) != want {
			t.Errorf("%s: %s", row.name, body)
		}
	}
}

func TestCutMember(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a":1,"x":[{"x":2}],"b":3}`:   `{"a":1,"b":3}`,
		`{"x":1 , "b":3}`:               `{ "b":3}`,
		`{"a":1, "x":null }`:            `{"a":1 }`,
		`{"x":{}}`:                      `{}`,
		`{"x":1,"x":2,"a":3,"x":4}`:     `{"a":3}`,
		`{"\u0078":1,"X":2}`:            `{"X":2}`,
		`{"a":{"x":1},"b":"\"x\":"}`:    `{"a":{"x":1},"b":"\"x\":"}`,
		"{\n \"a\": 1,\n \"x\": 2\n}\n": "{\n \"a\": 1\n}\n",
	} {
		got, err := cutMember([]byte(text), "x")
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

// TestEveryPlaceholderHasAValue: the contract's list, both spellings.
func TestEveryPlaceholderHasAValue(t *testing.T) {
	t.Parallel()
	const contract = `LOG_LEVEL LOG_FILE_PATH LOG_FILE_MAX_SIZE LOG_FILE_MAX_AGE LOG_FILE_MAX_COUNT DATASTORE_TYPE
		KUBERNETES_NODE_NAME KUBECONFIG_FILEPATH CNI_MTU KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT SERVICEACCOUNT_TOKEN
		CALICO_API_GROUP ETCD_CERT_FILE ETCD_CA_CERT_FILE ETCD_KEY_FILE ETCD_ENDPOINTS ETCD_DISCOVERY_SRV REQUIRE_MTU_FILE
		MODE VNI MAC_PREFIX DSR_SUPPORT KUBERNETES_DNS_SERVERS KUBERNETES_SERVICE_CIDRS KUBERNETES_ROUTE_POLICIES ROUTE_TYPE
		NODENAME_FILE IPAM_TYPE KUBECONFIG K8S_SERVICE_CIDR DNS_NAME_SERVERS`
	want := slices.Sorted(slices.Values(strings.Fields(contract)))
	for _, host := range []Host{linuxHost, windowsHost} {
		if got := slices.Sorted(maps.Keys(mustRead(t, nil, host).withPaths(nil, ""))); !slices.Equal(got, want) {
			t.Errorf("%s: %v\nwant %v", host.GOOS, got, want)
		}
	}
}
