package windows

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/windows/hns"
)

// nat is what an endpoint's outgoing traffic meets, decided when the endpoint
// is made: later changes of pools or configuration reach new pods only.
type nat struct {
	outgoing   bool
	exceptions []string
}

// natOf decides from the pools. An address in no pool counts as one of a pool
// with natOutgoing. host is the host's own subnet, if it is to be left out.
func natOf(pod netip.Addr, pools []dataplane.Pool, host netip.Prefix) nat {
	n := nat{outgoing: true}
	if pool, ok := poolOf(pod, pools); ok {
		n.outgoing = pool.NATOutgoing
	}
	for _, pool := range pools {
		if pool.CIDR.Addr().Is4() {
			n.exceptions = append(n.exceptions, pool.CIDR.Masked().String())
		}
	}
	if n.outgoing && host.IsValid() {
		n.exceptions = append(n.exceptions, host.Masked().String())
	}
	return n
}

func poolOf(pod netip.Addr, pools []dataplane.Pool) (dataplane.Pool, bool) {
	for _, pool := range pools {
		if pool.CIDR.Contains(pod) {
			return pool, true
		}
	}
	return dataplane.Pool{}, false
}

// endpointPolicies are the policies of a pod's endpoint in the order of Windows
// data plane contract 6.2.
func (o Options) endpointPolicies(pod, management netip.Addr, n nat) ([]hns.Policy, error) {
	policies, err := configuredPolicies(o.Policies, n)
	if err != nil {
		return nil, err
	}
	configured := len(o.Policies) > 0 && hasOutBoundNAT(o.Policies)
	if !configured && n.outgoing && len(n.exceptions) > 0 {
		policies = append(policies, policy(hns.PolicyOutBoundNAT, exceptions{unique(n.exceptions)}))
	}
	if o.Overlay {
		policies = append(policies, providerAddress(management))
	} else {
		policies = append(policies, policy(hns.PolicySDNRoute, sdnRoute{management.String() + "/32", true}))
	}
	if o.LoopbackDSR {
		policies = append(policies, policy(hns.PolicyOutBoundNAT, destinations{[]string{pod.String()}}))
	}
	return policies, nil
}

// The settings of the policies that this plugin makes itself.
type (
	exceptions struct {
		Exceptions []string `json:"Exceptions"`
	}
	destinations struct {
		Destinations []string `json:"Destinations"`
	}
	sdnRoute struct {
		DestinationPrefix string `json:"DestinationPrefix"`
		NeedEncap         bool   `json:"NeedEncap"`
	}
	isolation struct {
		IsolationID uint32 `json:"IsolationId"`
	}
	provider struct {
		ProviderAddress string `json:"ProviderAddress"`
	}
	routerMAC struct {
		Address string `json:"Address"`
	}
	acl struct {
		Protocols string `json:"Protocols"`
		Action    string `json:"Action"`
		Direction string `json:"Direction"`
		RuleType  string `json:"RuleType"`
		Priority  uint16 `json:"Priority"`
	}
)

func policy(kind string, settings any) hns.Policy {
	body, _ := json.Marshal(settings) // texts, numbers and booleans always encode
	return hns.Policy{Type: kind, Settings: body}
}

func providerAddress(address netip.Addr) hns.Policy {
	return policy(hns.PolicyProviderAddress, provider{address.String()})
}

// defaultDeny blocks what comes in until the policy agent has its own rules:
// 256 is any protocol, 65500 the largest priority that works, so that the
// agent's rules win.
func defaultDeny() hns.Policy {
	return policy(hns.PolicyACL, acl{Protocols: "256", Action: "Block", Direction: "In", RuleType: "Switch", Priority: 65500})
}

// configuredPolicies converts the endpoint policies of the configuration to
// schema 2. Fields that are not known here are kept.
func configuredPolicies(values []json.RawMessage, n nat) ([]hns.Policy, error) {
	var policies []hns.Policy
	for i, value := range values {
		kind, settings, err := splitPolicy(value)
		if err != nil {
			return nil, policyError(i, err)
		}
		switch {
		case strings.EqualFold(kind, hns.PolicyOutBoundNAT):
			kind = hns.PolicyOutBoundNAT
			if !n.outgoing {
				if _, err := listed(settings); err != nil {
					return nil, policyError(i, err)
				}
				continue
			}
			if err := addExceptions(settings, n.exceptions); err != nil {
				return nil, policyError(i, err)
			}
		case strings.EqualFold(kind, "ROUTE"), strings.EqualFold(kind, hns.PolicySDNRoute):
			kind = hns.PolicySDNRoute
		case strings.EqualFold(kind, "PA"):
			kind = hns.PolicyProviderAddress
			rename(settings, "PA", "ProviderAddress")
		}
		body, err := json.Marshal(settings)
		if err != nil {
			return nil, policyError(i, err)
		}
		policies = append(policies, hns.Policy{Type: kind, Settings: body})
	}
	return policies, nil
}

func policyError(index int, err error) error {
	return cnierr.New(cnierr.InvalidConfiguration,
		"network configuration key policies, EndpointPolicy number %d: %w", index+1, err)
}

func hasOutBoundNAT(values []json.RawMessage) bool {
	return slices.ContainsFunc(values, func(value json.RawMessage) bool {
		kind, _, err := splitPolicy(value)
		return err == nil && strings.EqualFold(kind, hns.PolicyOutBoundNAT)
	})
}

// splitPolicy takes an entry apart. One of schema 2 has its settings in an
// object of their own.
func splitPolicy(value json.RawMessage) (kind string, settings map[string]json.RawMessage, err error) {
	var entry map[string]json.RawMessage
	if err := json.Unmarshal(value, &entry); err != nil || entry == nil {
		return "", nil, fmt.Errorf("the Value is no object: write {\"Type\": ...}")
	}
	name, raw := member(entry, "Type")
	if err := json.Unmarshal(raw, &kind); err != nil || kind == "" {
		return "", nil, fmt.Errorf("the Value has no text Type: write the policy's type, like OutBoundNAT")
	}
	if _, inner := member(entry, "Settings"); inner != nil {
		if err := json.Unmarshal(inner, &settings); err == nil && settings != nil {
			return kind, settings, nil
		}
	}
	delete(entry, name)
	return kind, entry, nil
}

// member finds a key in any spelling of its case.
func member(object map[string]json.RawMessage, key string) (name string, value json.RawMessage) {
	if value, ok := object[key]; ok {
		return key, value
	}
	for name, value := range object {
		if strings.EqualFold(name, key) {
			return name, value
		}
	}
	return key, nil
}

func rename(settings map[string]json.RawMessage, from, to string) {
	if name, value := member(settings, from); value != nil {
		delete(settings, name)
		settings[to] = value
	}
}

// listed are the exceptions that an OutBoundNAT entry brings, in the spelling
// of either schema.
func listed(settings map[string]json.RawMessage) ([]string, error) {
	rename(settings, "ExceptionList", "Exceptions")
	_, raw := member(settings, "Exceptions")
	if raw == nil {
		return nil, nil
	}
	var own []string
	if err := json.Unmarshal(raw, &own); err != nil {
		return nil, fmt.Errorf("ExceptionList is no list of texts: write [\"10.0.0.0/8\", ...]")
	}
	return own, nil
}

func addExceptions(settings map[string]json.RawMessage, ours []string) error {
	own, err := listed(settings)
	if err != nil {
		return err
	}
	all := unique(slices.Concat(own, ours))
	if len(all) == 0 {
		return nil
	}
	body, err := json.Marshal(all)
	if err != nil {
		return err
	}
	name, _ := member(settings, "Exceptions")
	delete(settings, name)
	settings["Exceptions"] = body
	return nil
}

// unique keeps the first of equal entries.
func unique(texts []string) []string {
	var out []string
	for _, text := range texts {
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}
