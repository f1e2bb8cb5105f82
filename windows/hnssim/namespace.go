package hnssim

import (
	"encoding/json"
	"net/netip"
	"slices"

	"calico-cni/windows/hns"
)

func (e *Engine) createNamespace(document string) (string, error) {
	n := &namespace{}
	if err := json.Unmarshal([]byte(document), &n.Namespace); err != nil || n.SchemaVersion.Major != 2 {
		return "", fail("CreateNamespace", hns.InvalidJSON, "%s", document)
	}
	n.ID = newID()
	e.namespaces = append(e.namespaces, n)
	return n.ID, nil
}

func (e *Engine) showNamespace(n *namespace) hns.Namespace {
	shown := n.Namespace
	shown.ID = e.spelled(n.ID)
	shown.Resources = slices.Clone(n.Resources)
	for _, ep := range e.endpoints {
		if hns.SameID(ep.HostComputeNamespace, n.ID) {
			resource := hns.Resource{Type: hns.ResourceEndpoint}
			resource.Data.ID = e.spelled(ep.ID)
			shown.Resources = append(shown.Resources, resource)
		}
	}
	return shown
}

func (e *Engine) modifyNamespace(n *namespace, request modification) error {
	const call = "ModifyNamespace"
	var settings struct{ EndpointId string }
	if err := json.Unmarshal(request.Settings, &settings); err != nil || request.ResourceType != hns.ResourceEndpoint {
		return fail(call, hns.InvalidJSON, "resource %q, settings %s", request.ResourceType, request.Settings)
	}
	ep := e.findEndpoint(settings.EndpointId)
	if ep == nil {
		return fail(call, hns.EndpointNotFound, "%s", settings.EndpointId)
	}
	switch request.RequestType {
	case "Add":
		return e.attach(n, ep)
	case "Remove":
		if !hns.SameID(ep.HostComputeNamespace, n.ID) {
			return fail(call, hns.ElementNotFound, "endpoint %s is not in the namespace", ep.Name)
		}
		e.detach(ep)
		return nil
	}
	return fail(call, hns.RequestUnsupported, "request %q", request.RequestType)
}

// attach puts an endpoint into a namespace. In the host's it becomes an
// interface of the host.
func (e *Engine) attach(n *namespace, ep *endpoint) error {
	const call = "ModifyNamespace"
	if ep.Flags&hns.FlagRemote != 0 {
		return fail(call, hns.RemoteEndpoint, "%s", ep.Name)
	}
	if ep.HostComputeNamespace != "" {
		return fail(call, hns.AlreadyAttached, "%s", ep.Name)
	}
	ep.HostComputeNamespace = n.ID
	if n.Type != hns.NamespaceHostDefault {
		return nil
	}
	nic := hns.Interface{Index: endpointIndex, Name: interfaceName(ep)}
	for slices.ContainsFunc(e.interfaces, func(i hns.Interface) bool { return i.Index == nic.Index }) {
		nic.Index++
	}
	for _, c := range ep.IPConfigurations {
		if address, err := netip.ParseAddr(c.IPAddress); err == nil {
			nic.Addresses = append(nic.Addresses, netip.PrefixFrom(address, int(c.PrefixLength)))
		}
	}
	e.interfaces = append(e.interfaces, nic)
	return nil
}

func interfaceName(ep *endpoint) string { return "vEthernet (" + ep.Name + ")" }

func (e *Engine) detach(ep *endpoint) {
	ep.HostComputeNamespace = ""
	e.interfaces = slices.DeleteFunc(e.interfaces, func(i hns.Interface) bool { return i.Name == interfaceName(ep) })
}
