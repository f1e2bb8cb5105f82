package plugin

import (
	"net/netip"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/netconf"
)

// clamp keeps host-local off the addresses that Windows needs of an IPv4
// subnet: the first three and the last (network plugin contract 8).
func (s *serving) clamp(r netconf.Range) error {
	text, ok, err := r.Text("subnet")
	if err != nil || !ok || !s.windows() {
		return err
	}
	subnet, err := netip.ParsePrefix(text)
	if err != nil || !subnet.Addr().Is4() {
		return nil // host-local says what it thinks of it
	}
	lowest, highest := podRange(subnet)
	for _, end := range []struct {
		key   string
		bound netip.Addr
	}{{"rangeStart", lowest}, {"rangeEnd", highest}} {
		configured, ok, err := r.Text(end.key)
		if err != nil {
			return err
		}
		value := end.bound
		if ok {
			address, err := netip.ParseAddr(configured)
			if err != nil {
				return cnierr.New(cnierr.InvalidConfiguration, "network configuration key %s.%s: %q is no address: write one of %s", r.Path, end.key, configured, subnet)
			}
			if !address.Less(lowest) && !highest.Less(address) {
				value = address
			}
		}
		r.Set(end.key, value.String())
	}
	return nil
}

// podRange are the first and the last address of a subnet that a pod may have.
func podRange(subnet netip.Prefix) (lowest, highest netip.Addr) {
	first := subnet.Masked().Addr().As4()
	last := first
	for bit := subnet.Bits(); bit < 32; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	first[3] |= 3
	return netip.AddrFrom4(first), netip.AddrFrom4(last).Prev()
}
