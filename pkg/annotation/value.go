package annotation

import (
	"encoding/json"
	"net"
	"net/netip"
	"slices"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/model"
)

// value is one annotation: its text and where it stands. An empty text counts
// as absent, since that is how it is taken back.
type value struct {
	name, of, text string
	present        bool
}

func newValue(name, of string, metadata model.Metadata) value {
	text := metadata.Annotations[name]
	return value{name: name, of: of, text: text, present: text != ""}
}

func (r *reader) ofPod(name string) value {
	return newValue(name, "pod "+r.pod.Metadata.Namespace+"/"+r.pod.Metadata.Name, r.pod.Metadata)
}

// either is the pod's annotation, else the namespace's.
func (r *reader) either(name string) value {
	if v := r.ofPod(name); v.present {
		return v
	}
	return newValue(name, "namespace "+r.namespace.Metadata.Name, r.namespace.Metadata)
}

func (v value) wrong(format string, args ...any) error {
	return cnierr.Wrap(cnierr.InvalidAnnotation, cnierr.New(cnierr.InvalidAnnotation, format, args...), "annotation "+v.name+" of "+v.of)
}

// texts reads a JSON list of texts; nil if the annotation is absent.
func (v value) texts() ([]string, error) {
	if !v.present {
		return nil, nil
	}
	list := []string{}
	if err := json.Unmarshal([]byte(v.text), &list); err != nil || list == nil {
		return nil, v.wrong("%q is no JSON list of texts: write [\"...\"]", v.text)
	}
	return list, nil
}

func (v value) families() ([]model.Family, error) {
	texts, err := v.texts()
	if err != nil || texts == nil {
		return nil, err
	}
	var families []model.Family
	for _, text := range texts {
		switch text {
		case "IPv4":
			families = append(families, model.IPv4)
		case "IPv6":
			families = append(families, model.IPv6)
		default:
			return nil, v.wrong("%q is no family: write \"IPv4\" or \"IPv6\"", text)
		}
	}
	if len(families) == 0 {
		return nil, v.wrong("the list is empty, so the pod would get no address: name a family")
	}
	return families, nil
}

// addrs reads a list of addresses.
func (v value) addrs() ([]netip.Addr, error) {
	texts, err := v.texts()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, text := range texts {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return nil, v.wrong("%q is no IP address: write it without prefix length or zone", text)
		}
		addrs = append(addrs, addr.Unmap())
	}
	return addrs, nil
}

// onePerFamily reads a list of one or two addresses.
func (v value) onePerFamily() ([]netip.Addr, error) {
	if !v.present {
		return nil, nil
	}
	addrs, err := v.addrs()
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, v.wrong("the list is empty: name an address, or remove the annotation")
	}
	for i, addr := range addrs {
		if _, taken := sameFamily(addrs[:i], addr); taken {
			return nil, v.wrong("it has more than one %s address: keep one of a family", model.FamilyOf(addr))
		}
	}
	return addrs, nil
}

// macLength is that of the addresses of Ethernet.
const macLength = 6

func (v value) mac() (net.HardwareAddr, error) {
	if !v.present {
		return nil, nil
	}
	mac, err := net.ParseMAC(v.text)
	if err != nil || len(mac) != macLength {
		return nil, v.wrong("%q is no MAC address: write six pairs of hexadecimal digits with colons", v.text)
	}
	const group = 1 // the bit that marks a group address
	if mac[0]&group != 0 || slices.Equal(mac, make(net.HardwareAddr, macLength)) {
		return nil, v.wrong("%s is no address of a single interface: choose one whose second digit is even, such as 02:...", mac)
	}
	return mac, nil
}

// prefixes reads a list of CIDRs and masks them.
func (v value) prefixes() ([]netip.Prefix, error) {
	texts, err := v.texts()
	if err != nil {
		return nil, err
	}
	var prefixes []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, v.wrong("%q is no CIDR: write address/length", text)
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes, nil
}
