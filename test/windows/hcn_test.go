//go:build wine && linux

package windows

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"calico-cni/test/windows/wine"
)

// Why some of hcn's own tests do not apply to the simulator.
const (
	noLoadBalancer = "load balancers are kube-proxy's; the plugins have none"
	noSDNRoute     = "SDN routes as objects are other agents'; the plugins' are policies of endpoints"
	schema1        = "it is about schema 1, which the plugins do not use"
)

// inapplicable are the tests of hcn that do not apply; all others must pass.
func inapplicable() map[string]string {
	return map[string]string{
		"TestCreateDeleteLoadBalancer":          noLoadBalancer,
		"TestCreateUpdateDeleteLoadBalancer":    noLoadBalancer,
		"TestGetLoadBalancerById":               noLoadBalancer,
		"TestListLoadBalancer":                  noLoadBalancer,
		"TestLoadBalancerAddRemoveEndpoint":     noLoadBalancer,
		"TestAddLoadBalancer":                   noLoadBalancer,
		"TestAddDSRLoadBalancer":                noLoadBalancer,
		"TestAddILBLoadBalancer":                noLoadBalancer,
		"TestCreateDeleteRoute":                 noSDNRoute,
		"TestGetRouteById":                      noSDNRoute,
		"TestListRoutes":                        noSDNRoute,
		"TestRouteAddRemoveEndpoint":            noSDNRoute,
		"TestAddRoute":                          noSDNRoute,
		"TestV1Network":                         schema1,
		"TestV1Endpoint":                        schema1,
		"TestEndpoint":                          schema1,
		"TestEndpointGetAll":                    schema1,
		"TestEndpointStatsAll":                  schema1,
		"TestNetworkGetAll":                     schema1,
		"TestNetwork":                           schema1,
		"TestAccelnetNnvManagementMacAddresses": "it needs a network card that Azure has",
		"TestEndpointAlreadyExistsError":        "two endpoints map one port of the host; portmap's users do, the plugins do not",
		"TestNetworkFlags":                      "the plugins make networks without flags",
	}
}

// testHCN runs hcn's own tests against the simulator: what Microsoft expects of
// HNS, the simulator must do.
func testHCN(t *testing.T, machine *wine.Host) {
	const hcn = "github.com/Microsoft/hcsshim/hcn"
	n := newNode(t, machine, build)
	var all []string
	listed := n.wine.RunTests(t.Context(), t, wine.Tests{Package: hcn, Tags: "integration", List: true, Port: n.server.Port()})
	for name := range strings.FieldsSeq(listed.Stdout) {
		if strings.HasPrefix(name, "Test") {
			all = append(all, name)
		}
	}
	not := inapplicable()
	for name := range not {
		if !slices.Contains(all, name) {
			t.Errorf("hcn has no test %s", name)
		}
	}
	apply := slices.DeleteFunc(all, func(name string) bool { return not[name] != "" })
	var got wine.Result
	n.engine.Elsewhere(func() {
		got = n.wine.RunTests(t.Context(), t, wine.Tests{Package: hcn, Tags: "integration", Run: "^(" + strings.Join(apply, "|") + ")$", Port: n.server.Port()})
	})
	for _, name := range apply {
		if !strings.Contains(got.Stdout, "--- PASS: "+name+" (") {
			t.Errorf("%s of hcn does not pass", name)
		}
	}
	if got.Exit != 0 || len(apply) < 50 {
		t.Errorf("%d tests, exit %d\n%s", len(apply), got.Exit, got.Stdout)
	}
	measured("Windows: %d of hcn's own tests pass against the simulator, %d do not apply: %d reasons in test/windows/hcn_test.go",
		len(apply), len(not), len(slices.Compact(slices.Sorted(maps.Values(not)))))
}
