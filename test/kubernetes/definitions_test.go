//go:build kubernetes && linux

package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

// pools says of specs whether the definitions accept them (datastore contract
// 4.1).
var pools = map[string]bool{
	`{"cidr":"10.77.0.0/16"}`: true,
	`{"cidr":"10.77.0.0/16","blockSize":26,"ipipMode":"Always","vxlanMode":"Never","natOutgoing":true,"disableBGPExport":true,"nodeSelector":"has(x)"}`:        true,
	`{"cidr":"fd00:77::/64","blockSize":122,"vxlanMode":"CrossSubnet","allowedUses":["Workload"],"namespaceSelector":"team == 'a'","assignmentMode":"Manual"}`: true,
	`{"cidr":"10.77.0.0/16","blockSize":0,"allowedUses":[]}`:                         true,
	`{"cidr":"10.77.0.0/16","allowedUses":["LoadBalancer"]}`:                         true,
	`{"cidr":"10.77.0.0/26"}`:                                                        true,
	`{"cidr":"10.77.0.0/28","blockSize":26,"disabled":true}`:                         true,
	`{"cidr":"169.253.0.0/16"}`:                                                      true,
	`{}`:                                                                             false,
	`{"cidr":"10.77.0.0"}`:                                                           false,
	`{"cidr":"10.77.0.1/16"}`:                                                        false,
	`{"cidr":"10.77.0.0/27"}`:                                                        false,
	`{"cidr":"10.77.0.0/28","blockSize":26}`:                                         false,
	`{"cidr":"fd00:77::/124"}`:                                                       false,
	`{"cidr":"10.77.0.0/8","blockSize":19}`:                                          false,
	`{"cidr":"10.77.0.0/16","blockSize":122}`:                                        false,
	`{"cidr":"fd00:77::/64","blockSize":26}`:                                         false,
	`{"cidr":"169.254.1.0/24"}`:                                                      false,
	`{"cidr":"168.0.0.0/7"}`:                                                         false,
	`{"cidr":"fe80::/64"}`:                                                           false,
	`{"cidr":"fe00::/8"}`:                                                            false,
	`{"cidr":"10.77.0.0/16","ipipMode":"Always","vxlanMode":"Always"}`:               false,
	`{"cidr":"fd00:77::/64","ipipMode":"CrossSubnet"}`:                               false,
	`{"cidr":"10.77.0.0/16","ipipMode":"Sometimes"}`:                                 false,
	`{"cidr":"10.77.0.0/16","assignmentMode":"auto"}`:                                false,
	`{"cidr":"10.77.0.0/16","allowedUses":["Pods"]}`:                                 false,
	`{"cidr":"10.77.0.0/16","allowedUses":["Workload","Workload"]}`:                  false,
	`{"cidr":"10.77.0.0/16","allowedUses":["LoadBalancer","Tunnel"]}`:                false,
	`{"cidr":"10.77.0.0/16","allowedUses":["LoadBalancer"],"vxlanMode":"Always"}`:    false,
	`{"cidr":"10.77.0.0/16","allowedUses":["LoadBalancer"],"nodeSelector":"has(x)"}`: false,
	`{"cidr":"10.77.0.0/16","allowedUses":["LoadBalancer"],"disableBGPExport":true}`: false,
	`{"cidr":"10.77.0.0/16","allowedUses":["Tunnel"],"namespaceSelector":"has(x)"}`:  false,
	`{"cidr":"10.77.0.0/16","nodeSelector":"global()"}`:                              false,
	`{"cidr":"10.77.0.0/16","namespaceSelector":"global()"}`:                         false,
}

// accepts asks the server, which stores nothing.
func (e *env) accepts(plural, kind string, spec any) bool {
	e.Helper()
	_, err := cluster.Admin().Try("POST", e.path(plural)+"?dryRun=All&fieldValidation=Strict", map[string]any{
		"apiVersion": string(e.group), "kind": kind, "metadata": map[string]any{"name": "tried"}, "spec": spec,
	})
	var answer *kubetest.AnswerError
	if err != nil && (!errors.As(err, &answer) || answer.Status != http.StatusUnprocessableEntity) {
		e.Errorf("%s %v: %v", kind, spec, err)
	}
	return err == nil
}

func TestPoolDefinition(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		for spec, want := range pools {
			if accepted := e.accepts("ippools", "IPPool", json.RawMessage(spec)); accepted != want {
				t.Errorf("%s: accepted %v, want %v", spec, accepted, want)
			}
		}
	})
}

// TestFixedMembers: blocks were cut by them.
func TestFixedMembers(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		e.plant("ippools", "IPPool", map[string]any{"name": "pods"}, map[string]any{"cidr": "10.77.0.0/16", "blockSize": 26})
		for change, want := range map[string]bool{`{"disabled":true}`: true, `{"blockSize":27}`: false, `{"cidr":"10.78.0.0/16"}`: false} {
			_, err := cluster.Admin().Try("PATCH", e.path("ippools", "pods"), map[string]any{"spec": json.RawMessage(change)})
			if (err == nil) != want {
				t.Errorf("change %s: %v, want accepted %v", change, err, want)
			}
		}
	})
}

// TestOtherDefinitions: what the two groups agree on, and where they differ.
func TestOtherDefinitions(t *testing.T) {
	const empty = `"allocations":[null],"attributes":[],"unallocated":[0],"strictAffinity":false`
	groups(t, func(t *testing.T, e *env) {
		newer := e.group == model.GroupV3
		configs, config := "ipamconfigs", "IPAMConfig"
		if newer {
			configs, config = "ipamconfigurations", "IPAMConfiguration"
		}
		for _, row := range []struct {
			plural, kind, spec string
			want               bool
		}{
			{"ipamblocks", "IPAMBlock", `{"cidr":"10.77.0.0/32",` + empty + `}`, true},
			{"ipamblocks", "IPAMBlock", `{"cidr":"10.77.0.0/32","affinity":"host:a.b-c","affinityClaimTime":"2026-03-04T05:06:07Z","sequenceNumber":1772600767890123457,` + empty + `}`, true},
			{"ipamblocks", "IPAMBlock", `{"cidr":"10.77.0.0/32"}`, false},
			{"ipamblocks", "IPAMBlock", `{"cidr":"10.77.0.0/32","affinity":"somebody",` + empty + `}`, !newer},
			{"ipamblocks", "IPAMBlock", `{"cidr":"10.77.0.0/32","affinityClaimTime":"today",` + empty + `}`, false},
			{"blockaffinities", "BlockAffinity", `{"node":"a","cidr":"10.77.0.0/26","state":"confirmed","deleted":"false"}`, !newer},
			{"blockaffinities", "BlockAffinity", `{"node":"a","cidr":"10.77.0.0/26","state":"confirmed","deleted":false}`, newer},
			{"blockaffinities", "BlockAffinity", fmt.Sprintf(`{"node":"a","cidr":"10.77.0.0/26","state":"other","deleted":%v}`, e.flagText()), !newer},
			{"blockaffinities", "BlockAffinity", fmt.Sprintf(`{"cidr":"10.77.0.0/26","state":"","deleted":%v}`, e.flagText()), false},
			{"ipamhandles", "IPAMHandle", `{"handleID":"Net-A.ABC","block":{"10.77.0.0/26":1}}`, true},
			{"ipamhandles", "IPAMHandle", `{"handleID":"Net-A.ABC"}`, false},
			{configs, config, `{"strictAffinity":true,"autoAllocateBlocks":true,"maxBlocksPerHost":1000000,"ipCooldownSeconds":1200,"kubeVirtVMAddressPersistence":"Enabled"}`, true},
			{configs, config, `{"strictAffinity":true,"autoAllocateBlocks":true,"maxBlocksPerHost":1000001}`, !newer},
			{configs, config, `{"strictAffinity":true,"autoAllocateBlocks":true,"ipCooldownSeconds":1201}`, false},
			{configs, config, `{"strictAffinity":true}`, newer},
			{"ipreservations", "IPReservation", `{"reservedCIDRs":["10.77.0.0/30","fd00::/64"]}`, true},
			{"clusterinformations", "ClusterInformation", `{"clusterGUID":"a","clusterType":"k8s","calicoVersion":"v3","variant":"Calico","datastoreReady":true}`, true},
			{"clusterinformations", "ClusterInformation", `{"datastoreReady":"yes"}`, false},
		} {
			if accepted := e.accepts(row.plural, row.kind, json.RawMessage(row.spec)); accepted != row.want {
				t.Errorf("%s %s: accepted %v, want %v", row.kind, row.spec, accepted, row.want)
			}
		}
	})
}

func (e *env) flagText() string {
	body, _ := json.Marshal(e.flag(false)) // a string or a boolean
	return string(body)
}
