package netconf

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEveryKeyIsDocumented looks for each key of the configuration in
// docs/configuration.md. What only the CNI protocol or another plugin's section
// defines is theirs to document.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	protocols := []string{
		"dns", "runtimeConfig", "args", "prevResult", "cni.dev/valid-attachments", "cni.dev/attachments",
		"ipam", "ipam.subnet", "ipam.ranges", "ipam.rangeStart", "ipam.rangeEnd", "ipam.routes",
	}
	var check func(of reflect.Type, path string)
	check = func(of reflect.Type, path string) {
		known := members(of)
		for _, key := range slices.Sorted(maps.Keys(known)) {
			at := join(path, key)
			if of := known[key]; of.Kind() == reflect.Struct && !slices.Contains(protocols, at) || at == "ipam" {
				check(of, at)
			} else if !slices.Contains(protocols, at) && !strings.Contains(string(text), "`"+at+"`") {
				t.Errorf("docs/configuration.md lacks the key %s", at)
			}
		}
	}
	check(reflect.TypeFor[Config](), "")
}
