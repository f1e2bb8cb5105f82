package windows

import (
	"net/netip"
	"strings"
	"testing"

	"calico-cni/windows/hns"
	"calico-cni/windows/hnssim"
)

func TestHostEndpoint(t *testing.T) {
	t.Parallel()
	t.Run("Windows/7 L2Bridge: at index 2, attached to the host, once", func(t *testing.T) {
		n := newNode(t, l2bridge)
		n.add("c1", "10.48.5.68/26")
		n.add("c2", "10.48.5.69/26")
		host := n.endpoint("Calico_ep")
		if got := host.IPConfigurations[0]; got != (hns.IPConfiguration{IPAddress: "10.48.5.66", PrefixLength: 26}) {
			t.Errorf("it has %v", got)
		}
		namespaces, err := n.engine.Service().Namespaces(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, namespace := range namespaces {
			if namespace.Type == hns.NamespaceHostDefault && (len(namespace.EndpointIDs()) != 1 || !hns.SameID(namespace.EndpointIDs()[0], host.ID)) {
				t.Errorf("in the host's namespace are %v", namespace.EndpointIDs())
			}
		}
		wantJSON(t, firstNamed(t, n.sent("CreateEndpoint"), "Calico_ep"), `{"Name":"Calico_ep","HostComputeNetwork":"`+created(t, n, "Calico_ep")+`",
			"IpConfigurations":[{"IpAddress":"10.48.5.66","PrefixLength":26}],"SchemaVersion":{"Major":2,"Minor":0}}`)
	})
	t.Run("Windows/7 L2Bridge: without a host namespace one is made", func(t *testing.T) {
		n := newNode(t, l2bridge)
		namespaces, err := n.engine.Service().Namespaces(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		n.removeNamespace(namespaces[0].ID)
		n.add("c1", "10.48.5.68/26")
		if sent := n.sent("CreateNamespace"); !strings.Contains(strings.Join(sent, ""), "HostDefault") {
			t.Errorf("the namespaces made are %v", sent)
		}
	})
	t.Run("Windows/7 L2Bridge: attaching is tried again, and attached already is attached", func(t *testing.T) {
		n := newNode(t, l2bridge)
		n.engine.Inject(hnssim.Fault{Call: "ModifyNamespace", Times: 3, Code: 0x80070015})
		n.engine.Inject(hnssim.Fault{Call: "ModifyNamespace", Skip: 3, Times: 1, Code: 0x80070015, After: true})
		n.add("c1", "10.48.5.68/26")
	})
	t.Run("Windows/8 removed by hand", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			n.add("c1", "10.48.5.68/26")
			n.remove(n.endpoint("Calico_ep").ID)
			n.add("c2", "10.48.5.69/26")
			n.wantNames(n.endpointNames(), "Calico_ep", "c1_Calico", "c2_Calico")
		})
	})
	t.Run("Windows/8 detached by hand", func(t *testing.T) {
		n := newNode(t, l2bridge)
		n.add("c1", "10.48.5.68/26")
		host := n.endpoint("Calico_ep")
		if err := n.engine.Service().Detach(deadline(t), host.HostComputeNamespace, host.ID); err != nil {
			t.Fatal(err)
		}
		n.add("c2", "10.48.5.69/26")
		if again := n.endpoint("Calico_ep"); !again.Attached() || !hns.SameID(again.ID, host.ID) {
			t.Errorf("the host's endpoint is %+v", again)
		}
	})
	t.Run("Windows/9 wrong address", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			n.add("c1", "10.48.5.68/26")
			host := n.endpoint("Calico_ep")
			n.remove(host.ID)
			n.make(hns.Endpoint{Name: "Calico_ep", HostComputeNetwork: host.HostComputeNetwork,
				IPConfigurations: []hns.IPConfiguration{{IPAddress: "10.48.5.90"}}})
			n.add("c2", "10.48.5.69/26")
			if got := addressOf(n.endpoint("Calico_ep")).String(); got != "10.48.5.66" {
				t.Errorf("its address is %s", got)
			}
		})
	})
	t.Run("Windows/9 wrong network", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			n.add("c1", "10.48.5.68/26")
			n.remove(n.endpoint("Calico_ep").ID)
			other := n.makeNetwork(hns.Network{Name: "other", Type: "Transparent", Ipams: []hns.Ipam{{Subnets: []hns.Subnet{{
				IPAddressPrefix: "10.99.0.0/24", Routes: []hns.Route{{NextHop: "10.99.0.1", DestinationPrefix: "0.0.0.0/0"}}}}}}})
			n.make(hns.Endpoint{Name: "Calico_ep", HostComputeNetwork: other.ID, IPConfigurations: []hns.IPConfiguration{{IPAddress: "10.99.0.2"}}})
			n.add("c2", "10.48.5.69/26")
			if got := addressOf(n.endpoint("Calico_ep")).String(); got != "10.48.5.66" {
				t.Errorf("its address is %s", got)
			}
			n.wantNames(n.networkNames(), "Calico", "other")
		})
	})
	t.Run("Windows/10 Overlay: remote, with the host's address and MAC", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		wantJSON(t, firstNamed(t, n.sent("CreateEndpoint"), "Calico_ep"), `{"Name":"Calico_ep","HostComputeNetwork":"`+created(t, n, "Calico_ep")+`",
			"MacAddress":"00-15-5D-10-20-30","IpConfigurations":[{"IpAddress":"10.48.5.66","PrefixLength":26}],
			"Policies":[{"Type":"ProviderAddress","Settings":{"ProviderAddress":"172.20.41.103"}}],"Flags":1,"SchemaVersion":{"Major":2,"Minor":0}}`)
		before := n.endpoint("Calico_ep")
		n.engine.Readdress(netip.MustParsePrefix("172.20.41.150/19"))
		n.add("c2", "10.48.5.69/26")
		after := n.endpoint("Calico_ep")
		if hns.SameID(before.ID, after.ID) || providerOf(after.Policies).String() != "172.20.41.150" {
			t.Errorf("the host's endpoint is still %+v", after)
		}
		if got := providerOf(n.endpoint("c2_Calico").Policies).String(); got != "172.20.41.150" {
			t.Errorf("the pod's ProviderAddress is %s", got)
		}
	})
}

// remove deletes an endpoint by hand.
func (n *node) remove(id string) {
	n.t.Helper()
	if err := n.engine.Service().DeleteEndpoint(deadline(n.t), id); err != nil {
		n.t.Fatal(err)
	}
}

// make makes an endpoint by hand.
func (n *node) make(e hns.Endpoint) (made hns.Endpoint) {
	n.t.Helper()
	e.SchemaVersion = hns.Schema2()
	n.engine.Elsewhere(func() {
		var err error
		if made, err = n.engine.Service().CreateEndpoint(deadline(n.t), e); err != nil {
			n.t.Fatal(err)
		}
	})
	return made
}

func (n *node) makeNetwork(document hns.Network) (made hns.Network) {
	n.t.Helper()
	document.SchemaVersion = hns.Schema2()
	n.engine.Elsewhere(func() {
		var err error
		if made, err = n.engine.Service().CreateNetwork(deadline(n.t), document); err != nil {
			n.t.Fatal(err)
		}
	})
	return made
}

// firstNamed is the first of the documents that has a name.
func firstNamed(t *testing.T, documents []string, name string) string {
	t.Helper()
	for _, document := range documents {
		if strings.Contains(document, `"Name":"`+name+`"`) {
			return document
		}
	}
	t.Fatalf("no document has the name %s: %v", name, documents)
	return ""
}

// created is the network id as it was written in the document of a name.
func created(t *testing.T, n *node, name string) string {
	t.Helper()
	_, rest, _ := strings.Cut(firstNamed(t, n.sent("CreateEndpoint"), name), `"HostComputeNetwork":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}
