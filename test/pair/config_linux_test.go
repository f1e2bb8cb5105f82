package pair

import (
	"encoding/json"
	"strings"
	"testing"
)

// network is the name of the network in every configuration of these tests.
const network = "net"

// config is a plugin's network configuration.
type config map[string]any

// newConfig is a dual-stack network on the embedded datastore.
func newConfig() config {
	return config{
		"cniVersion":             "1.1.0",
		"name":                   network,
		"type":                   "calico",
		"nodename":               "node-1",
		"nodename_file_optional": true,
		"log_level":              "debug",
		"pools":                  []any{pool("10.77.0.0/24"), pool("fd00:77::/112")},
		"ipam": map[string]any{
			"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "true",
		},
	}
}

func pool(cidr string) map[string]any { return map[string]any{"cidr": cidr} }

// ipv4Only is newConfig with one IPv4 pool.
func ipv4Only() config {
	return newConfig().with("ipam.assign_ipv6", "false").with("pools", []any{pool("10.77.0.0/24")})
}

// with is a copy in which the value at a dotted path is another one.
func (c config) with(path string, value any) config {
	changed := c.clone()
	object, key := changed.parent(path)
	object[key] = value
	return changed
}

// without is a copy in which the key at a dotted path is absent.
func (c config) without(path string) config {
	changed := c.clone()
	object, key := changed.parent(path)
	delete(object, key)
	return changed
}

func (c config) parent(path string) (object map[string]any, key string) {
	object = c
	steps := strings.Split(path, ".")
	for _, step := range steps[:len(steps)-1] {
		next, isObject := object[step].(map[string]any)
		if !isObject {
			next = map[string]any{}
			object[step] = next
		}
		object = next
	}
	return object, steps[len(steps)-1]
}

func (c config) clone() config {
	return cloneObject(c)
}

func cloneObject(object map[string]any) map[string]any {
	clone := make(map[string]any, len(object))
	for key, value := range object {
		if inner, isObject := value.(map[string]any); isObject {
			value = cloneObject(inner)
		}
		clone[key] = value
	}
	return clone
}

func (c config) json(t testing.TB) string {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// identity is who a runtime says it is networking.
type identity struct{ name, args string }

// identities are the two kinds of workload. No API server is needed for
// Kubernetes names as long as nothing of a pod must be looked up.
var identities = []identity{
	{"other orchestrator", ""},
	{"Kubernetes", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=infra"},
}

func (i identity) kubernetes() bool { return i.args != "" }
