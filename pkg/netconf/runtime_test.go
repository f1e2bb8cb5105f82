package netconf

import (
	"maps"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"calico-cni/pkg/cnierr"
)

func TestValidAttachments(t *testing.T) {
	t.Parallel()
	a := types.GCAttachment{ContainerID: "a", IfName: "eth0"}
	b := types.GCAttachment{ContainerID: "b", IfName: "eth1"}
	const listA = `[{"containerID":"a","ifname":"eth0"}]`
	const listAB = `[{"containerID":"b","ifname":"eth1"},{"containerID":"a","ifname":"eth0","more":1}]`
	tests := []struct {
		name    string
		stdin   string
		want    []types.GCAttachment
		present bool
	}{
		{"Network/64 keys absent", minimal, nil, false},
		{"Network/64 null", with(`"cni.dev/valid-attachments":null`), nil, true},
		{"Network/64 empty list", with(`"cni.dev/valid-attachments":[]`), nil, true},
		{"Network/64 one key", with(`"cni.dev/valid-attachments":` + listA), []types.GCAttachment{a}, true},
		{"Network/64 the other key", with(`"cni.dev/attachments":` + listA), []types.GCAttachment{a}, true},
		{"Network/64 both keys with different lists", with(`"cni.dev/valid-attachments":` + listA + `,"cni.dev/attachments":` + listAB),
			[]types.GCAttachment{a, b}, true},
		{"Network/64 null beside a list", with(`"cni.dev/valid-attachments":null,"cni.dev/attachments":` + listA), []types.GCAttachment{a}, true},
		{"without ifname", with(`"cni.dev/attachments":[{"containerID":"a"}]`), []types.GCAttachment{{ContainerID: "a"}}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, present, err := parse(t, tt.stdin).ValidAttachments()
			if err != nil || present != tt.present || !slices.Equal(got, tt.want) {
				t.Errorf("got %v, %v, %v, want %v, %v", got, present, err, tt.want, tt.present)
			}
		})
	}
}

func TestValidAttachmentsRefuses(t *testing.T) {
	t.Parallel()
	for value, part := range map[string]string{
		`{}`:                               "want a list",
		`"a"`:                              "want a list of {containerID, ifname}, found a string",
		`["a"]`:                            "[0]: want an object {containerID, ifname}, found a string",
		`[{"containerID":7}]`:              "[0].containerID: want the id of a container, found 7",
		`[{"containerID":""}]`:             "[0].containerID: want",
		`[{"ifname":"eth0"}]`:              "[0].containerID: want the id of a container, found null",
		`[{"containerID":"a"},null]`:       "[1]: want an object",
		`[{"containerID":"a","ifname":7}]`: "[0].ifname: want a string, found 7",
	} {
		t.Run("Network/64 malformed "+value, func(t *testing.T) {
			t.Parallel()
			for _, key := range []string{"cni.dev/valid-attachments", "cni.dev/attachments"} {
				_, present, err := parse(t, with(`"`+key+`":`+value)).ValidAttachments()
				wantError(t, err, cnierr.InvalidConfiguration, key, part)
				if !present {
					t.Error("a malformed key counts as absent")
				}
			}
		})
	}
}

func TestMesosLabels(t *testing.T) {
	t.Parallel()
	conf := parse(t, with(`"args":{"org.apache.mesos":{"network_info":{"labels":{"labels":[
		{"key":"app","value":"web shop"},{"key":"projectcalico.org/namespace","value":"blue"},{"key":"///","value":"gone"}]}}}}`))
	want := map[string]string{"app": "web-shop", "projectcalico.org.namespace": "blue"}
	if got := conf.Labels(); !maps.Equal(got, want) {
		t.Errorf("Labels = %q, want %q", got, want)
	}
	if got := conf.LabelNamespace(); got != "blue" {
		t.Errorf("LabelNamespace = %q", got)
	}
	if bare := parse(t, minimal); len(bare.Labels()) != 0 || bare.LabelNamespace() != "" {
		t.Error("labels without a Mesos section")
	}
}

func TestSanitiseLabel(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                "",
		"plain_1":         "plain_1",
		"a/b":             "a.b",
		"a b":             "a-b",
		"a @# b":          "a-b",
		"a--b":            "a--b",
		"a-.-b":           "a.b",
		"a/ /b":           "a.b",
		"..a..b..":        "a.b",
		"-a-":             "a",
		"/@/":             "",
		"käse":            "k-se",
		"a-b.c--d..e-.-f": "a-b.c--d.e.f",
	} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			if got := sanitiseLabel(in); got != want {
				t.Errorf("sanitiseLabel(%q) = %q, want %q", in, got, want)
			}
		})
	}
}
