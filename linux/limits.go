package linux

import (
	"strings"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
)

// What the kernel takes. With an MTU under mtuMinV6 it gives an interface no
// IPv6 at all.
const (
	mtuMin    = 68
	mtuMinV6  = 1280
	mtuMax    = 65535
	queuesMax = 4096
)

// withinLimits fails if the kernel would not make what is asked for, or would
// make something else. Its own answer is a bare "invalid argument".
func withinLimits(req dataplane.Request) error {
	if rule := nameRule(req.Attachment.IfName); rule != "" {
		return cnierr.New(cnierr.InvalidEnvironment, "CNI_IFNAME: %q cannot name an interface of Linux: %s", req.Attachment.IfName, rule)
	}
	if rule := nameRule(req.HostInterface); rule != "" {
		return cnierr.New(cnierr.InvalidEnvironment, "host interface %q cannot be made: %s; change FELIX_INTERFACEPREFIX", req.HostInterface, rule)
	}
	if req.MTU != 0 && (req.MTU < mtuMin || req.MTU > mtuMax) {
		return cnierr.New(cnierr.InvalidConfiguration,
			"MTU %d, from network configuration key mtu or from the MTU file: the kernel takes %d to %d", req.MTU, mtuMin, mtuMax)
	}
	if _, v6 := families(req.Addresses); v6 && req.MTU != 0 && req.MTU < mtuMinV6 {
		return cnierr.New(cnierr.InvalidConfiguration,
			"MTU %d, from network configuration key mtu or from the MTU file: IPv6 needs at least %d", req.MTU, mtuMinV6)
	}
	if req.Queues > queuesMax {
		return cnierr.New(cnierr.InvalidConfiguration, "network configuration key num_queues: %d: the kernel takes at most %d", req.Queues, queuesMax)
	}
	return nil
}

// nameRule is the rule of the kernel that a name breaks. Length and characters
// that no name may have are checked before.
func nameRule(name string) string {
	switch {
	case strings.Contains(name, "%"):
		return "the kernel would put a number in place of %d, and refuses every other %"
	case name == "all", name == "default":
		return "the kernel keeps the names all and default for the settings of all interfaces"
	}
	return ""
}
