package linux

import (
	"context"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/dataplane"
)

// convergencePoll is how often CHECK looks again while something is different.
const convergencePoll = 100 * time.Millisecond

// Differences compares the host with what is expected (linux data plane 9.2)
// and lists what is still different after up to 2 s.
func (d *Dataplane) Differences(ctx context.Context, want dataplane.Expectation) ([]string, error) {
	s, err := d.openPod(ctx, want.Namespace)
	if err != nil {
		return nil, err
	}
	defer s.close()
	for end := time.Now().Add(d.kernel.convergenceLimit); ; {
		got, err := s.observe(ctx, want)
		if err != nil {
			return nil, err
		}
		diffs := differences(want, got)
		if len(diffs) == 0 || time.Now().After(end) {
			return diffs, nil
		}
		if err := pause(ctx, convergencePoll); err != nil {
			return nil, refused(err, "waiting for interface %s in network namespace %s to be as expected",
				want.Attachment.IfName, want.Namespace)
		}
	}
}

// observe reads everything that differences compares.
func (s *session) observe(ctx context.Context, want dataplane.Expectation) (observed, error) {
	var got observed
	var err error
	if got.pod, err = s.podEnd(want.Attachment.IfName); err != nil || got.pod == nil {
		return got, err
	}
	if got.podAddresses, err = listAddresses(ctx, s.pod, got.pod.index); err != nil {
		return got, refused(err, "listing the addresses of interface %s in the pod", got.pod.name)
	}
	if got.podRoutes, err = routesThrough(ctx, s.pod, got.pod.index); err != nil {
		return got, refused(err, "listing the routes of interface %s in the pod", got.pod.name)
	}
	if got.host, err = s.hostEnd(*got.pod); err != nil || got.host == nil {
		return got, err
	}
	return s.observeHost(ctx, want, got)
}

func (s *session) observeHost(ctx context.Context, want dataplane.Expectation, got observed) (observed, error) {
	addresses, err := listAddresses(ctx, s.host, got.host.index)
	if err != nil {
		return got, refused(err, "listing the addresses of host interface %s", got.host.name)
	}
	for _, prefix := range addresses {
		if prefix.Addr().Is6() && prefix.Addr().IsLinkLocalUnicast() {
			got.linkLocals = append(got.linkLocals, prefix.Addr())
		}
	}
	if got.hostRoutes, err = routesThrough(ctx, s.host, got.host.index); err != nil {
		return got, refused(err, "listing the routes of host interface %s", got.host.name)
	}
	got.sysctls, err = s.hostSysctlValues(want.Addresses, got.host.name)
	return got, err
}

// routesThrough lists the routes of both families whose output is the
// interface, from every table.
func routesThrough(ctx context.Context, sock rtnetlink, index int) ([]route, error) {
	var routes []route
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		all, err := listRoutes(ctx, sock, family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			if r.link == index {
				routes = append(routes, r)
			}
		}
	}
	return routes, nil
}

// hostSysctlValues reads what CHECK compares. An unreadable one has no value,
// which is a difference.
func (s *session) hostSysctlValues(addresses []netip.Addr, hostName string) (map[string]string, error) {
	values := map[string]string{}
	v4, v6 := families(addresses)
	err := within(s.hostNS, func() error {
		for _, wanted := range lasting(hostSysctls(hostName, v4, v6)) {
			value, err := readSysctl(wanted.path)
			if err != nil {
				s.d.log.Warn("sysctl not readable", "sysctl", wanted.name(), "error", err)
			}
			values[wanted.path] = value
		}
		return nil
	})
	return values, err
}
