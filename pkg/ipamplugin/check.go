package ipamplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/kubevirt"
	"calico-cni/pkg/model"
)

// Check fails with code 115 unless every address that prevResult gives this
// interface is allocated under the container's handle.
func (p *Plugin) Check(ctx context.Context, call *invocation.Call) (err error) {
	s, err := p.begin(call)
	if err != nil {
		return err
	}
	defer s.End(&err)
	if err := s.validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Conf.Timeout())
	defer cancel()
	previous, err := Previous(s.Conf.CNIVersion, s.Conf.PrevResult)
	if err != nil {
		return err
	}
	if err := s.Connect(ctx); err != nil {
		return err
	}
	missing, err := s.missing(ctx, Addresses(previous, call.IfName, call.Netns))
	if err != nil {
		return connect.Explain(err)
	}
	if len(missing) > 0 {
		return cnierr.New(cnierr.CheckFailed, "%s; delete the container so that it is networked again", strings.Join(missing, "; "))
	}
	return nil
}

// missing says which addresses are allocated neither under the container's
// handle nor under that of the virtual machine in the pod.
func (s *serving) missing(ctx context.Context, addresses []netip.Addr) ([]string, error) {
	handles := []string{s.ID.HandleID()}
	if s.mayRunMachine() {
		answers, err := s.Store.Read(ctx, s.podQuery())
		if err != nil {
			return nil, err
		}
		pod, _ := datastore.One[model.Pod](answers[0])
		if name, ok := kubevirt.InstanceOf(pod); ok {
			handles = append(handles, kubevirt.HandleID(s.Conf.Name, s.ID.Namespace, name))
		}
	}
	for _, handle := range handles {
		held, err := s.allocator().AddressesByHandle(ctx, handle)
		if err != nil && !errors.Is(err, datastore.ErrNotFound) {
			return nil, err
		}
		addresses = slices.DeleteFunc(addresses, func(addr netip.Addr) bool { return slices.Contains(held, addr) })
	}
	var missing []string
	for _, address := range addresses {
		missing = append(missing, fmt.Sprintf("address %s is not allocated under handle %s", address, strings.Join(handles, " or ")))
	}
	return missing, nil
}

// Previous reads prevResult, which CHECK needs (code 7). One that does not tell
// its version has the configuration's.
func Previous(cniVersion string, raw json.RawMessage) (*types100.Result, error) {
	if raw == nil {
		return nil, cnierr.New(cnierr.InvalidConfiguration, "network configuration key prevResult is missing: CHECK needs the result of ADD")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, malformedPrevious(err)
	}
	var own string
	if err := json.Unmarshal(members["cniVersion"], &own); err == nil && own != "" {
		cniVersion = own
	} else {
		members["cniVersion"] = json.RawMessage(strconv.Quote(cniVersion))
	}
	versioned, err := json.Marshal(members)
	if err != nil {
		return nil, malformedPrevious(err)
	}
	result, err := create.Create(cniVersion, versioned)
	if err != nil {
		return nil, malformedPrevious(err)
	}
	converted, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, malformedPrevious(err)
	}
	return converted, nil
}

func malformedPrevious(err error) error {
	return cnierr.New(cnierr.InvalidConfiguration, "network configuration key prevResult: %w", err)
}

// Addresses are those of a result that belong to the container's interface: a
// chain's result may hold others'. Without interfaces all are.
func Addresses(result *types100.Result, ifName, sandbox string) []netip.Addr {
	var addresses []netip.Addr
	for _, ip := range result.IPs {
		if ip.Interface != nil && len(result.Interfaces) > 0 && !isInterface(result, *ip.Interface, ifName, sandbox) {
			continue
		}
		if addr, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addresses = append(addresses, addr.Unmap())
		}
	}
	return addresses
}

func isInterface(result *types100.Result, index int, ifName, sandbox string) bool {
	if index < 0 || index >= len(result.Interfaces) {
		return false
	}
	found := result.Interfaces[index]
	return found.Name == ifName && (found.Sandbox == sandbox || sandbox == "")
}
