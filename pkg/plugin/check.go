package plugin

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
)

// Check compares the host, the record and the allocation with what ADD
// returned, and names every difference (Linux data plane contract 9.2).
func (p *Plugin) Check(ctx context.Context, call *invocation.Call) (err error) {
	s, err := p.begin(call)
	if err != nil {
		return err
	}
	defer s.End(&err)
	if err := s.validate(); err != nil {
		return err
	}
	if err := s.identify(); err != nil {
		return err
	}
	previous, err := ipamplugin.Previous(s.Conf.CNIVersion, s.Conf.PrevResult)
	if err != nil {
		return err
	}
	if err := s.dataplane.Validate(call.Netns); err != nil {
		return err
	}
	if err := s.findIPAM(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Conf.Timeout())
	defer cancel()
	return connect.Explain(s.check(ctx, previous))
}

func (s *serving) check(ctx context.Context, previous *types100.Result) error {
	if err := s.Connect(ctx); err != nil {
		return err
	}
	record, _, err := s.reread(ctx)
	if err != nil {
		return err
	}
	ownAddresses, err := s.bypassesIPAM(ctx)
	if err != nil {
		return err
	}
	expected := s.expectation(previous)
	expected.SkipHostRoutes = expected.SkipHostRoutes && !ownAddresses
	differences, err := s.dataplane.Differences(ctx, expected)
	if err != nil {
		return err
	}
	ofRecord, err := s.recordDifferences(ctx, record, expected.Addresses)
	if err != nil {
		return err
	}
	differences = append(differences, ofRecord...)
	if !ownAddresses {
		if err := s.checkIPAM(ctx); err != nil && len(differences) == 0 {
			return err
		} else if err != nil {
			differences = append(differences, err.Error())
		}
	}
	if len(differences) > 0 {
		return cnierr.New(cnierr.CheckFailed, "container %s, interface %s: %s; delete the container so that it is networked again",
			s.Call.ContainerID, s.Call.IfName, strings.Join(differences, "; "))
	}
	return nil
}

func (s *serving) checkIPAM(ctx context.Context) error {
	call := *s.Call
	var err error
	if call.Stdin, err = s.ipamDocument(); err != nil {
		return err
	}
	_, err = s.callIPAM(ctx, &call, s.Store)
	return err
}

// expectation is what prevResult says of our interface.
func (s *serving) expectation(previous *types100.Result) dataplane.Expectation {
	expected := dataplane.Expectation{
		Attachment: s.ID.Attachment, Namespace: s.Call.Netns,
		Addresses:     ipamplugin.Addresses(previous, s.Call.IfName, s.Call.Netns),
		RoutesUnknown: s.Conf.IPAM.Type == netconf.IPAMHostLocal && len(s.Conf.IPAM.Routes) > 0,
		SkipHostRoutes: s.ID.IsKubernetes() && s.Conf.IPAM.Type == netconf.IPAMCalico &&
			len(previous.Routes) == 0,
	}
	for _, found := range previous.Interfaces {
		if found.Name == s.Call.IfName && found.Sandbox == s.Call.Netns {
			expected.MAC, expected.MTU = found.Mac, found.Mtu
		}
	}
	return expected
}

// recordDifferences compares the record with this container and its addresses.
// A pod's second interface has no record.
func (s *serving) recordDifferences(ctx context.Context, record *model.WorkloadEndpoint, addresses []netip.Addr) ([]string, error) {
	second, err := s.hasInterface(ctx, func(found dataplane.Found) bool {
		return found.Owner.Is(s.ID.Attachment) && found.HostInterface == s.ID.SecondHostInterface(s.prefix)
	})
	if err != nil || second && s.ID.IsKubernetes() {
		return nil, err
	}
	if record == nil {
		return []string{"the endpoint record is missing"}, nil
	}
	var differences []string
	if record.Spec.ContainerID != s.Call.ContainerID {
		differences = append(differences, fmt.Sprintf("the endpoint record %s/%s names container %q",
			record.Metadata.Namespace, record.Metadata.Name, record.Spec.ContainerID))
	}
	recorded := asRecord(record).Addresses
	for _, address := range addresses {
		if !slices.Contains(recorded, address) {
			differences = append(differences, fmt.Sprintf("the endpoint record %s/%s lacks address %s",
				record.Metadata.Namespace, record.Metadata.Name, address))
		}
	}
	return differences, nil
}
