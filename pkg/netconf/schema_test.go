package netconf

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write docs/calico.schema.json")

const schemaFile = "../../docs/calico.schema.json"

// TestSchema holds docs/calico.schema.json against Config, from which it is made
// with -update, and against docs/configuration.md, which tells what keys mean.
func TestSchema(t *testing.T) {
	t.Parallel()
	root := schemaOf(reflect.TypeFor[Config](), "", documented(t))
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "The object of the plugin calico in a CNI network configuration"
	root["required"] = []string{"type", "ipam"}
	want, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what Config and docs/configuration.md say: go test ./pkg/netconf -run TestSchema -update", schemaFile)
	}
}

// schemaOf describes a type. Null counts as absent everywhere, and what others
// put into an object is theirs.
func schemaOf(of reflect.Type, path string, meaning map[string]string) map[string]any {
	schema := map[string]any{}
	if text := meaning[path]; text != "" {
		schema["description"] = text
	}
	switch {
	case of == reflect.TypeFor[json.RawMessage](), of.Kind() == reflect.Interface:
		return schema
	case of.Kind() == reflect.String:
		schema["type"] = []string{"string", "null"}
	case of.Kind() == reflect.Bool:
		schema["type"] = []string{"boolean", "null"}
	case of.Kind() == reflect.Int:
		schema["type"] = []string{"integer", "null"}
	case of.Kind() == reflect.Uint:
		schema["type"], schema["minimum"] = []string{"integer", "null"}, 0
	case of.Kind() == reflect.Slice:
		schema["type"], schema["items"] = []string{"array", "null"}, schemaOf(of.Elem(), path+"[]", meaning)
	case of.Kind() == reflect.Map:
		schema["type"] = []string{"object", "null"}
	case of.Kind() == reflect.Struct:
		properties := map[string]any{}
		for key, member := range members(of) {
			properties[key] = schemaOf(member, join(path, key), meaning)
		}
		schema["type"], schema["properties"] = []string{"object", "null"}, properties
	}
	return schema
}

// documented is what the tables of docs/configuration.md say of each key.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile("`([^`]+)`")
	meaning := map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) < 2 {
			continue
		}
		says := strings.TrimSpace(cells[len(cells)-1])
		if len(cells) == 4 && strings.TrimSpace(cells[2]) != "" {
			says += " (default: " + strings.TrimSpace(cells[2]) + ")"
		}
		for _, match := range key.FindAllStringSubmatch(cells[0], -1) {
			if meaning[match[1]] == "" {
				meaning[match[1]] = strings.ReplaceAll(says, "`", "")
			}
		}
	}
	return meaning
}

// TestSchemaAgrees: what the schema accepts and refuses, the plugin does.
func TestSchemaAgrees(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	for text, valid := range map[string]bool{
		`{"name":"net","type":"calico","ipam":{"type":"calico-ipam","assign_ipv6":"true","ipv4_pools":["pods"]},"mtu":1450,"log_level":"info"}`:                   true,
		`{"name":"net","type":"calico","ipam":{"type":"host-local","subnet":"usePodCidr"},"policy":{"type":"k8s"},"x-of-others":{"a":1},"vxlan_mac_prefix":null}`: true,
		`{"name":"net","type":"calico","ipam":{"type":"calico-ipam"},"pools":[{"cidr":"10.0.0.0/16","natOutgoing":true}],"datastore_type":"embedded"}`:            true,
		`{"name":"net","type":"calico","ipam":{"type":"calico-ipam"},"mtu":"1450"}`:                                                                               false,
		`{"name":"net","type":"calico","ipam":{"type":"calico-ipam","assign_ipv6":true}}`:                                                                         false,
		`{"name":"net","type":"calico","ipam":{"type":"calico-ipam","ipv4_pools":"pods"}}`:                                                                        false,
		`{"name":"net","type":"calico","ipam":{"type":"calico-ipam"},"vxlan_vni":-1}`:                                                                             false,
		`{"name":"net","type":"calico","ipam":{"type":"calico-ipam"},"pools":[{"cidr":7}]}`:                                                                       false,
		`{"name":"net","type":"calico","ipam":{"type":"calico-ipam"},"container_settings":["no object"]}`:                                                         false,
		`{"name":"net","type":"calico","ipam":{"type":"calico-ipam"},"windows_use_single_network":"true"}`:                                                        false,
	} {
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(document); (err == nil) != valid {
			t.Errorf("%s: the schema says %v", text, err)
		}
		if _, err := Parse([]byte(text)); (err == nil) != valid {
			t.Errorf("%s: the plugin says %v", text, err)
		}
	}
}
