package pair

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// templateValues are what an installer fills in on a Linux node.
var templateValues = map[string]string{
	"LOG_LEVEL": "info", "LOG_FILE_PATH": "/var/lib/cni.log",
	"LOG_FILE_MAX_SIZE": "10", "LOG_FILE_MAX_AGE": "30", "LOG_FILE_MAX_COUNT": "3",
	"DATASTORE_TYPE": "embedded", "KUBERNETES_NODE_NAME": "node-1",
	"ETCD_ENDPOINTS": "", "ETCD_DISCOVERY_SRV": "", "ETCD_KEY_FILE": "", "ETCD_CERT_FILE": "", "ETCD_CA_CERT_FILE": "",
	"CNI_MTU": "1440", "REQUIRE_MTU_FILE": "false",
}

// fromTemplate renders cni.conf.template as an installer does and returns the
// plugin's configuration as a runtime passes it.
func fromTemplate(t *testing.T, changes map[string]string) config {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "cni.conf.template"))
	if err != nil {
		t.Fatal(err)
	}
	rendered := string(text)
	for name, value := range templateValues {
		if changed, has := changes[name]; has {
			value = changed
		}
		rendered = strings.ReplaceAll(rendered, "__"+name+"__", value)
	}
	var list struct {
		CNIVersion  string   `json:"cniVersion"`
		CNIVersions []string `json:"cniVersions"`
		Name        string   `json:"name"`
		Plugins     []config `json:"plugins"`
	}
	if err := json.Unmarshal([]byte(rendered), &list); err != nil {
		t.Fatalf("the rendered template is not JSON: %v\n%s", err, rendered)
	}
	if list.CNIVersion != "1.0.0" || strings.Join(list.CNIVersions, " ") != "1.0.0 1.1.0" {
		t.Errorf("cniVersion %q, cniVersions %q", list.CNIVersion, list.CNIVersions)
	}
	return list.Plugins[0].with("name", list.Name).with("cniVersion", "1.1.0")
}

func TestTemplateEmbedded(t *testing.T) {
	t.Parallel()
	h, p := newHost(t), newPod(t, "container", "")
	c := fromTemplate(t, nil)
	r := h.add(t, p, c)
	if len(r.IPs) != 1 || r.Interfaces[1].Mtu != 1440 {
		t.Errorf("the result is %+v", r)
	}
	h.reaches(t, r.addresses()[0])
	h.del(t, p, c)
	h.nothingLeft(t)
}

func TestTemplateWithPlaceholders(t *testing.T) {
	t.Parallel()
	h, p := newHost(t), newPod(t, "container", "")
	before := h.state(t)
	c := fromTemplate(t, map[string]string{"KUBERNETES_NODE_NAME": "__KUBERNETES_NODE_NAME__"})
	h.run(t, p.verb(t, "ADD", c)).fails(t, 7, "nodename")
	h.unchanged(t, before)
}
