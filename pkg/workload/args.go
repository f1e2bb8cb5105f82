package workload

import (
	"net/netip"
	"strings"

	"calico-cni/pkg/cnierr"
)

// Args is what CNI_ARGS says, as far as this product reads it. Keys it does not
// read are tolerated whatever IgnoreUnknown says: other plugins may need them.
type Args struct {
	PodName      string
	PodNamespace string
	// IP is the address wanted, unparsed: a verb that needs no address must not
	// fail on a bad one.
	IP string
	// TestNamespace is the namespace of an endpoint outside Kubernetes.
	TestNamespace string
}

// ParseArgs reads CNI_ARGS (K=V;K=V). A repeated key counts as last written.
func ParseArgs(s string) (Args, error) {
	var args Args
	if s == "" {
		return args, nil
	}
	for pair := range strings.SplitSeq(s, ";") {
		key, value, found := strings.Cut(pair, "=")
		if !found || strings.Contains(value, "=") {
			return Args{}, cnierr.New(cnierr.InvalidEnvironment,
				"CNI_ARGS: pair %q does not have exactly one \"=\": write KEY=VALUE;KEY=VALUE", pair)
		}
		if err := args.set(key, value); err != nil {
			return Args{}, err
		}
	}
	return args, nil
}

// set keeps the value of a key that is read. The names become parts of the
// datastore's keys, which a "/" would divide.
func (a *Args) set(key, value string) error {
	names := map[string]*string{
		"K8S_POD_NAME": &a.PodName, "K8S_POD_NAMESPACE": &a.PodNamespace, "CNI_TEST_NAMESPACE": &a.TestNamespace,
	}
	name, isName := names[key]
	switch {
	case key == "IP":
		a.IP = value
	case isName && strings.Contains(value, "/"):
		return cnierr.New(cnierr.InvalidEnvironment, "CNI_ARGS: %s=%s is not a name: it must not contain \"/\"", key, value)
	case isName:
		*name = value
	}
	return nil
}

// Address is the address that IP= asks for; ok is false if it asks for none.
func (a Args) Address() (addr netip.Addr, ok bool, err error) {
	if a.IP == "" {
		return netip.Addr{}, false, nil
	}
	addr, err = netip.ParseAddr(a.IP)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, false, cnierr.New(cnierr.InvalidEnvironment,
			"CNI_ARGS: IP=%s is not an IP address: write one address without prefix length or zone", a.IP)
	}
	return addr.Unmap(), true, nil
}

// AppendIP returns CNI_ARGS that ask for this address. The address goes last,
// because the last of repeated keys counts.
func AppendIP(args string, addr netip.Addr) string {
	pair := "IP=" + addr.String()
	if args == "" {
		return pair
	}
	return args + ";" + pair
}

// PrependIgnoreUnknown returns CNI_ARGS that make plugins built on the CNI
// library tolerate keys they do not know.
func PrependIgnoreUnknown(args string) string {
	const pair = "IgnoreUnknown=1"
	if args == "" {
		return pair
	}
	return pair + ";" + args
}
