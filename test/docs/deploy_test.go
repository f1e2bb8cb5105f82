package docs

import (
	"os"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestConfigMapHoldsTheTemplate: the cluster's copy of cni.conf.template is the
// file at the root.
func TestConfigMapHoldsTheTemplate(t *testing.T) {
	template, err := os.ReadFile("../../cni.conf.template")
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("../../deploy/configmap.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var configMap struct{ Data map[string]string }
	if err := yaml.Unmarshal(manifest, &configMap); err != nil {
		t.Fatal(err)
	}
	if len(configMap.Data) != 1 || configMap.Data["cni.conf.template"] != string(template) {
		t.Error("deploy/configmap.yaml does not hold cni.conf.template: copy that into it, indented by four blanks")
	}
}
