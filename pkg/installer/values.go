package installer

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"

	"calico-cni/pkg/netconf"
)

// values are the texts that placeholders stand for, by name.
type values map[string]value

// value is a text for a place in a JSON document. A bare one is complete JSON:
// quotes around its placeholder go with it. Any other stands within quotes.
type value struct {
	text string
	bare bool
}

// text is for within quotes.
func text(s string) value {
	quoted := quote(s)
	return value{text: quoted[1 : len(quoted)-1]}
}

func bare(s string) value { return value{text: s, bare: true} }

func quote(s string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // a text into memory: it cannot fail
	return strings.TrimSuffix(out.String(), "\n")
}

// list is what stands between the brackets of a list of texts.
func list(items []string) value {
	quoted := make([]string, len(items))
	for i, item := range items {
		quoted[i] = quote(item)
	}
	return bare(strings.Join(quoted, ", "))
}

// Defaults of the network plugin contract 11 and of "where we go beyond the
// reference" 5.
const (
	defaultLogFile        = "/var/log/calico/cni/cni.log"
	defaultAPIGroup       = "crd.projectcalico.org/v1"
	defaultMTU            = 1500
	defaultVNI            = 4096
	defaultServiceAddress = "10.96.0.10"
)

// templateValues reads the values of placeholders that come from the
// environment. Those that only Windows has are read there and have their
// defaults elsewhere: a template may serve both.
func templateValues(e *environment, host Host) values {
	logFile := defaultLogFile
	if host.GOOS == "windows" {
		logFile = "c:" + logFile
	}
	v := values{
		"LOG_LEVEL":               text(e.text("LOG_LEVEL", "info")),
		"LOG_FILE_PATH":           text(e.text("LOG_FILE_PATH", logFile)),
		"LOG_FILE_MAX_SIZE":       e.bareNumber("LOG_FILE_MAX_SIZE", 10, anyNumber),
		"LOG_FILE_MAX_AGE":        e.bareNumber("LOG_FILE_MAX_AGE", 30, anyNumber),
		"LOG_FILE_MAX_COUNT":      e.bareNumber("LOG_FILE_MAX_COUNT", 3, anyNumber),
		"DATASTORE_TYPE":          text(e.choice("DATASTORE_TYPE", string(netconf.KubernetesAPI), string(netconf.Etcd), string(netconf.EmbeddedDatastore))),
		"KUBERNETES_NODE_NAME":    text(e.text("KUBERNETES_NODE_NAME", strings.ToLower(strings.TrimSpace(host.Name)))),
		"CNI_MTU":                 e.bareNumber("CNI_MTU", defaultMTU, 65535),
		"KUBERNETES_SERVICE_HOST": text(e.text("KUBERNETES_SERVICE_HOST", "")),
		"KUBERNETES_SERVICE_PORT": text(e.text("KUBERNETES_SERVICE_PORT", "")),
		"CALICO_API_GROUP":        text(e.text("CALICO_API_GROUP", defaultAPIGroup)),
		"ETCD_ENDPOINTS":          text(e.text("ETCD_ENDPOINTS", "")),
		"ETCD_DISCOVERY_SRV":      text(e.text("ETCD_DISCOVERY_SRV", "")),
		"REQUIRE_MTU_FILE":        bare(strconv.FormatBool(e.boolean("REQUIRE_MTU_FILE", false))),
	}
	if host.GOOS != "windows" {
		e = &environment{getenv: func(string) string { return "" }}
	}
	v.addWindows(e, host)
	return v
}

func (e *environment) bareNumber(name string, otherwise, most int) value {
	return bare(strconv.Itoa(e.number(name, otherwise, 0, most)))
}

func (v values) addWindows(e *environment, host Host) {
	mode := e.choice("CALICO_NETWORKING_BACKEND", "vxlan", "windows-bgp", "bird", "bgp", "none")
	switch mode {
	case "bird", "bgp":
		mode = "windows-bgp"
	case "none":
		mode = ""
	}
	ipam := e.text("CNI_IPAM_TYPE", "calico-ipam")
	if mode == "vxlan" && ipam != "calico-ipam" {
		e.wrong("CNI_IPAM_TYPE", "%q does not work with the networking backend vxlan: use calico-ipam, or set CALICO_NETWORKING_BACKEND to windows-bgp", ipam)
	}
	services := e.cidrs("KUBERNETES_SERVICE_CIDRS", defaultServiceAddress)
	route := e.text("ROUTE_TYPE", "SDNROUTE")
	v["MODE"] = text(mode)
	v["IPAM_TYPE"] = text(ipam)
	v["VNI"] = bare(strconv.Itoa(e.number("VXLAN_VNI", defaultVNI, 4096, 1<<24-1)))
	v["MAC_PREFIX"] = text(e.text("MAC_PREFIX", "0E-2A"))
	v["DSR_SUPPORT"] = bare(strconv.FormatBool(host.DSR))
	v["ROUTE_TYPE"] = text(route)
	v["KUBERNETES_ROUTE_POLICIES"] = routePolicies(route, services)
	v["KUBERNETES_SERVICE_CIDRS"] = list(services)
	v["KUBERNETES_DNS_SERVERS"] = list(e.addresses("KUBERNETES_DNS_SERVERS", defaultServiceAddress))
	v["NODENAME_FILE"] = text(e.text("CALICO_NODENAME_FILE", "c:/var/run/calico/nodename"))
	// The names in templates of older scripts.
	v["K8S_SERVICE_CIDR"] = v["KUBERNETES_SERVICE_CIDRS"]
	v["DNS_NAME_SERVERS"] = v["KUBERNETES_DNS_SERVERS"]
}

// routePolicies is one policy for each prefix: a policy has room for one only.
func routePolicies(kind string, prefixes []string) value {
	policies := make([]string, len(prefixes))
	for i, prefix := range prefixes {
		policies[i] = `{"Name": "EndpointPolicy", "Value": {"Type": ` + quote(kind) +
			`, "DestinationPrefix": ` + quote(prefix) + `, "NeedEncap": true}}`
	}
	return bare(strings.Join(policies, ", "))
}

// cidrs are prefixes, or addresses as the contract's default is one.
func (e *environment) cidrs(name, otherwise string) []string {
	if e.text(name, "") == "" {
		e.warnings = append(e.warnings, name+" is not set: pods will reach services only at "+otherwise)
	}
	items := e.list(name, otherwise)
	for i, item := range items {
		if addr, err := netip.ParseAddr(item); err == nil {
			items[i] = netip.PrefixFrom(addr, addr.BitLen()).String()
		} else if _, err := netip.ParsePrefix(item); err != nil {
			e.wrong(name, "%q is not a CIDR", item)
		}
	}
	return items
}

func (e *environment) addresses(name, otherwise string) []string {
	items := e.list(name, otherwise)
	for _, item := range items {
		if _, err := netip.ParseAddr(item); err != nil {
			e.wrong(name, "%q is not an IP address", item)
		}
	}
	return items
}
