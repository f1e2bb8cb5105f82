package hnssim

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/windows/hns"
)

// form is the JSON form of a member of a policy's settings.
type form byte

const (
	text    form = 's'
	number  form = 'n'
	boolean form = 'b'
	texts   form = 'l'
)

// knownSettings are the types of endpoint policies with their members; nil
// members: any.
func knownSettings(kind string) (members map[string]form, known bool) {
	switch strings.ToLower(kind) {
	case "portmapping":
		return map[string]form{"Protocol": number, "InternalPort": number, "ExternalPort": number, "VIP": text, "Flags": number}, true
	case "acl":
		return map[string]form{"Protocols": text, "Action": text, "Direction": text, "LocalAddresses": text, "RemoteAddresses": text,
			"LocalPorts": text, "RemotePorts": text, "RuleType": text, "Priority": number}, true
	case "qos":
		return map[string]form{"MaximumOutgoingBandwidthInBytes": number}, true
	case "outboundnat":
		return map[string]form{"VirtualIP": text, "Exceptions": texts, "Destinations": texts, "Flags": number, "MaxPortPoolUsage": number}, true
	case "sdnroute":
		return map[string]form{"DestinationPrefix": text, "NextHop": text, "NeedEncap": boolean}, true
	case "l4proxy":
		return map[string]form{"IP": text, "Port": text, "Protocol": number, "Exceptions": texts, "Destination": text, "OutboundNAT": boolean}, true
	case "portname":
		return map[string]form{"Name": text}, true
	case "encapoverhead":
		return map[string]form{"Overhead": number}, true
	case "iov":
		return map[string]form{"IovOffloadWeight": number, "QueuePairsRequested": number, "InterruptModeration": number}, true
	case "provideraddress":
		return map[string]form{"ProviderAddress": text}, true
	case "l2driver", "l4wfpproxy", "interfaceconstraint", "tieracl":
		return nil, true
	}
	return nil, false
}

var networkPolicyTypes = [...]string{"SourceMacAddress", "NetAdapterName", "VSwitchExtension", "DrMacAddress", "AutomaticDNS",
	"InterfaceConstraint", "ProviderAddress", "RemoteSubnetRoute", "VxlanPort", "HostRoute", "SetPolicy", "L4Proxy", "LayerConstraint", "NetworkACL"}

func checkNetworkPolicy(call string, p hns.Policy) error {
	if slices.ContainsFunc(networkPolicyTypes[:], func(known string) bool { return strings.EqualFold(known, p.Type) }) {
		return nil
	}
	return fail(call, hns.UnknownPolicyType, "%s", p.Type)
}

func (e *Engine) checkEndpointPolicies(call string, network hns.NetworkType, policies []hns.Policy) error {
	for _, p := range policies {
		members, known := knownSettings(p.Type)
		if !known {
			return fail(call, hns.UnknownPolicyType, "%s", p.Type)
		}
		var given map[string]json.RawMessage
		if len(p.Settings) > 0 {
			if err := json.Unmarshal(p.Settings, &given); err != nil {
				return fail(call, hns.InvalidPolicy, "%s: %s", p.Type, p.Settings)
			}
		}
		if e.assumes(StrictPolicySettings) && members != nil && !fits(given, members) {
			return fail(call, hns.InvalidPolicy, "%s: %s", p.Type, p.Settings)
		}
		if !means(network, p.Type, given) {
			return fail(call, hns.InvalidPolicy, "%s on %s: %s", p.Type, network, p.Settings)
		}
	}
	return nil
}

// fits reports whether all members are known and of the right form.
func fits(given map[string]json.RawMessage, members map[string]form) bool {
	for name, value := range given {
		want, known := form(0), false
		for member, form := range members {
			if strings.EqualFold(member, name) {
				want, known = form, true
			}
		}
		if !known || !isForm(value, want) {
			return false
		}
	}
	return true
}

func isForm(value json.RawMessage, want form) bool {
	var err error
	switch want {
	case text:
		var s string
		err = json.Unmarshal(value, &s)
	case number:
		var n float64
		err = json.Unmarshal(value, &n)
	case boolean:
		var b bool
		err = json.Unmarshal(value, &b)
	case texts:
		var l []string
		err = json.Unmarshal(value, &l)
	}
	return err == nil
}

// means checks what the members say.
func means(network hns.NetworkType, kind string, given map[string]json.RawMessage) bool {
	switch strings.ToLower(kind) {
	case "provideraddress":
		return network == hns.Overlay
	case "sdnroute":
		_, err := netip.ParsePrefix(textOf(given["DestinationPrefix"]))
		return err == nil
	case "outboundnat":
		return areAddresses(given["Exceptions"])
	case "acl":
		priority := 0
		_ = json.Unmarshal(given["Priority"], &priority) // absent is 0
		return priority >= 1 && priority <= 65500 && slices.Contains([]string{"Switch", "Host"}, textOf(given["RuleType"]))
	}
	return true
}

func textOf(value json.RawMessage) string {
	var s string
	_ = json.Unmarshal(value, &s) // absent is empty
	return s
}

func areAddresses(value json.RawMessage) bool {
	var list []string
	_ = json.Unmarshal(value, &list) // absent is none
	for _, entry := range list {
		prefix, prefixErr := netip.ParsePrefix(entry)
		address, err := netip.ParseAddr(entry)
		if !(prefixErr == nil && prefix.Addr().Is4()) && !(err == nil && address.Is4()) {
			return false
		}
	}
	return true
}

func policiesOf(call string, request modification) ([]hns.Policy, error) {
	var settings struct{ Policies []hns.Policy }
	if err := json.Unmarshal(request.Settings, &settings); err != nil {
		return nil, fail(call, hns.InvalidJSON, "%v", err)
	}
	switch request.RequestType {
	case "Add", "Remove", "Update":
		return settings.Policies, nil
	}
	return nil, fail(call, hns.RequestUnsupported, "request %q", request.RequestType)
}

// changed applies a change of policies. Update replaces those of the types it
// names and keeps the others, Remove deletes equal ones.
func changed(old, policies []hns.Policy, request string) []hns.Policy {
	kept := slices.DeleteFunc(slices.Clone(old), func(o hns.Policy) bool {
		return slices.ContainsFunc(policies, func(p hns.Policy) bool {
			same := strings.EqualFold(o.Type, p.Type)
			return same && (request == "Update" || request == "Remove" && bytes.Equal(compact(o.Settings), compact(p.Settings)))
		})
	})
	if request == "Remove" {
		return kept
	}
	return append(kept, policies...)
}

func compact(document json.RawMessage) []byte {
	var out bytes.Buffer
	if json.Compact(&out, document) != nil {
		return document
	}
	return out.Bytes()
}
