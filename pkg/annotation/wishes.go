package annotation

import (
	"net"
	"net/netip"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/model"
)

// The annotations read. The first three may stand on the namespace too; the
// pod's win, each by itself.
const (
	IPv4Pools             = "cni.projectcalico.org/ipv4pools"
	IPv6Pools             = "cni.projectcalico.org/ipv6pools"
	IPFamilies            = "cni.projectcalico.org/ipFamilies"
	IPAddrs               = "cni.projectcalico.org/ipAddrs"
	IPAddrsNoIPAM         = "cni.projectcalico.org/ipAddrsNoIpam"
	FloatingIPs           = "cni.projectcalico.org/floatingIPs"
	HWAddr                = "cni.projectcalico.org/hwAddr"
	AllowedSourcePrefixes = "cni.projectcalico.org/allowedSourcePrefixes"
)

// Allowed is what the configuration lets a pod ask for.
type Allowed struct {
	// CalicoIPAM is true if calico-ipam gives the addresses: only it knows
	// pools, families and certain addresses.
	CalicoIPAM bool
	// AddressesWithoutIPAM and FloatingIPs are the keys of feature_control.
	AddressesWithoutIPAM, FloatingIPs bool
}

// Wishes is what a pod and its namespace ask for. What they do not mention is
// nil.
type Wishes struct {
	// Pools4 and Pools6 are names or CIDRs, which replace the configured ones;
	// an empty list allows every pool.
	Pools4, Pools6 []string
	// Families replace the configured ones.
	Families []model.Family
	// Addresses are to be taken from IPAM, one of a family at most;
	// AddressesWithoutIPAM are the pod's own. Only one of the two is set.
	Addresses, AddressesWithoutIPAM []netip.Addr
	// FloatingIPs lead to the pod's address of their family.
	FloatingIPs []netip.Addr
	MAC         net.HardwareAddr
	// SourcePrefixes are those that the pod may send from beside its own.
	SourcePrefixes []netip.Prefix
}

// Read reads the annotations of a pod and its namespace. Errors have code 107
// and name annotation and object.
func Read(namespace *model.Namespace, pod *model.Pod, allowed Allowed) (Wishes, error) {
	r := reader{namespace: namespace, pod: pod, allowed: allowed}
	for _, read := range []func() error{r.ipam, r.addresses, r.floatingIPs, r.mac, r.sourcePrefixes} {
		if err := read(); err != nil {
			return Wishes{}, err
		}
	}
	return r.wishes, nil
}

type reader struct {
	namespace *model.Namespace
	pod       *model.Pod
	allowed   Allowed
	wishes    Wishes
}

// ipam reads what calico-ipam is told by its configuration. Other IPAM plugins
// know none of it, so there it is not even looked at.
func (r *reader) ipam() error {
	if !r.allowed.CalicoIPAM {
		return nil
	}
	var err error
	if r.wishes.Pools4, err = r.either(IPv4Pools).texts(); err != nil {
		return err
	}
	if r.wishes.Pools6, err = r.either(IPv6Pools).texts(); err != nil {
		return err
	}
	r.wishes.Families, err = r.either(IPFamilies).families()
	return err
}

func (r *reader) addresses() error {
	fromIPAM, own := r.ofPod(IPAddrs), r.ofPod(IPAddrsNoIPAM)
	switch {
	case !fromIPAM.present && !own.present:
		return nil
	case fromIPAM.present && own.present:
		return fromIPAM.wrong("it cannot be combined with %s: keep one of them", IPAddrsNoIPAM)
	case !r.allowed.CalicoIPAM:
		return either(fromIPAM, own).wrong("it needs calico-ipam as ipam.type of the network configuration: remove the annotation")
	case own.present && !r.allowed.AddressesWithoutIPAM:
		return own.wrong("the network configuration does not allow it: set feature_control.ip_addrs_no_ipam, or remove the annotation")
	}
	var err error
	if r.wishes.Addresses, err = fromIPAM.onePerFamily(); err != nil {
		return err
	}
	r.wishes.AddressesWithoutIPAM, err = own.onePerFamily()
	return err
}

func either(a, b value) value {
	if a.present {
		return a
	}
	return b
}

func (r *reader) floatingIPs() error {
	v := r.ofPod(FloatingIPs)
	if v.present && !r.allowed.FloatingIPs {
		return v.wrong("the network configuration does not allow it: set feature_control.floating_ips, or remove the annotation")
	}
	var err error
	r.wishes.FloatingIPs, err = v.addrs()
	return err
}

func (r *reader) mac() (err error) {
	r.wishes.MAC, err = r.ofPod(HWAddr).mac()
	return err
}

func (r *reader) sourcePrefixes() (err error) {
	r.wishes.SourcePrefixes, err = r.ofPod(AllowedSourcePrefixes).prefixes()
	return err
}

// NATs maps the floating addresses to the pod's address of their family. They
// are all of them, whatever a record held before.
func (w Wishes) NATs(addresses []netip.Addr) ([]model.IPNAT, error) {
	var nats []model.IPNAT
	for _, floating := range w.FloatingIPs {
		internal, ok := sameFamily(addresses, floating)
		if !ok {
			return nil, cnierr.New(cnierr.InvalidAnnotation,
				"annotation %s: the pod has no %s address for %s to lead to: remove it, or give the pod such an address",
				FloatingIPs, model.FamilyOf(floating), floating)
		}
		nats = append(nats, model.IPNAT{InternalIP: internal.String(), ExternalIP: floating.String()})
	}
	return nats, nil
}

func sameFamily(addresses []netip.Addr, like netip.Addr) (netip.Addr, bool) {
	for _, address := range addresses {
		if model.FamilyOf(address) == model.FamilyOf(like) {
			return address, true
		}
	}
	return netip.Addr{}, false
}
