package windows

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/windows/hns"
)

// Options configure a Dataplane. Service and Host are required.
type Options struct {
	// Name of the network configuration; names of networks begin with it.
	Name string
	// Overlay puts pods on a VXLAN network, else on an L2 bridge.
	Overlay bool
	// VNI 0 means 4096.
	VNI uint
	// MACPrefix begins the MAC of pods on a VXLAN network.
	MACPrefix string
	// SingleNetwork: one network of the configuration's name, else one for each
	// subnet.
	SingleNetwork bool
	// DisableHostSubnetNATExclusion: traffic to the host's own subnet is
	// masqueraded as well.
	DisableHostSubnetNATExclusion bool
	// DisableDefaultDeny: no block-all rule until the policy agent has its own.
	DisableDefaultDeny bool
	LoopbackDSR        bool
	// Policies are the endpoint policies of the configuration, of either schema.
	Policies []json.RawMessage

	Assumptions Assumptions

	Service hns.Service
	Host    hns.Host
	// Logger receives warnings; nil discards them.
	Logger *slog.Logger
	// Pause waits between two looks at something; nil: in real time.
	Pause func(context.Context, time.Duration) error
}

// Assumptions are what is believed of the Host Networking Service without
// having been seen on a real node. The zero value is what a plugin wants.
type Assumptions struct {
	// ProviderAddressAlways: every L2Bridge network shows its ProviderAddress
	// policy sooner or later, as other agents read it. If false, one that does
	// not is taken to have the address of the interface with the default route.
	ProviderAddressAlways bool
}

// VNIs of HNS: below are VLANs, above is more than the header holds.
const (
	defaultVNI = 4096
	maxVNI     = 1<<24 - 1
)

// vni is the isolation id of a VXLAN network.
func (o Options) vni() (uint32, error) {
	switch {
	case o.VNI == 0:
		return defaultVNI, nil
	case o.VNI < defaultVNI || o.VNI > maxVNI:
		return 0, cnierr.New(cnierr.NotOnWindows,
			"network configuration key vxlan_vni: %d is no VNI of Windows: use %d to %d", o.VNI, defaultVNI, maxVNI)
	}
	return uint32(o.VNI), nil
}

const hexDigits = "0123456789abcdefABCDEF"

// checkMACPrefix wants two octets as HNS writes them.
func (o Options) checkMACPrefix() error {
	p := o.MACPrefix
	if len(p) == 5 && p[2] == '-' && strings.Trim(p[:2]+p[3:], hexDigits) == "" {
		return nil
	}
	return cnierr.New(cnierr.InvalidConfiguration,
		"network configuration key vxlan_mac_prefix: %q is not the beginning of a MAC: write two octets like 0E-2A", p)
}

// Builds that can do VXLAN (Windows data plane contract 11): 1809, and from
// 1903 on.
const (
	build1809 = 17763
	build1903 = 18317
)

func checkBuild(build int) error {
	if build == build1809 || build >= build1903 {
		return nil
	}
	return cnierr.New(cnierr.NotOnWindows,
		"this is build %d of Windows: VXLAN networks need build %d, or %d and later; update Windows, or use another mode", build, build1809, build1903)
}

// Possible fails if the configuration asks for what cannot be, before anything
// is touched.
func (d *Dataplane) Possible() error {
	if d.Overlay {
		if _, err := d.vni(); err != nil {
			return err
		}
		if err := d.checkMACPrefix(); err != nil {
			return err
		}
		build, err := d.Host.Build()
		if err != nil {
			return cnierr.New(cnierr.HNSRefused, "reading the build number of Windows: %w", err)
		}
		if err := checkBuild(build); err != nil {
			return err
		}
	}
	_, err := configuredPolicies(d.Policies, nat{})
	return err
}
