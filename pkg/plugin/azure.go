package plugin

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/netconf"
)

// azure-vnet-ipam must be told the subnet of its last result, and at DEL the
// address; both are kept in files (network plugin contract 8).

// azureNetwork is network.json.
type azureNetwork struct {
	Subnet string `json:"subnet"`
}

// azureEndpoint is the file of an attachment.
type azureEndpoint struct {
	Addresses []string `json:"addresses"`
}

func (s *serving) isAzure() bool { return s.Conf.IPAM.Type == netconf.IPAMAzure }

func (s *serving) azureDirectory() string {
	return filepath.Join(s.plugin.StateDirectory, "azure", "networks", s.Conf.Name)
}

func (s *serving) azureNetworkFile() string { return filepath.Join(s.azureDirectory(), "network.json") }

func (s *serving) azureEndpointFile() string {
	return filepath.Join(s.azureDirectory(), s.Call.ContainerID+"-"+s.Call.IfName)
}

// azureInput puts the network's subnet into the document, if one is known.
func (s *serving) azureInput(call invocation.Call) (invocation.Call, error) {
	if !s.isAzure() {
		return call, nil
	}
	var network azureNetwork
	if err := readState(s.azureNetworkFile(), &network); err != nil || network.Subnet == "" {
		return call, err
	}
	return s.withIPAM(call, map[string]string{"subnet": network.Subnet})
}

// rememberAzure stores what DEL will need. If that fails, the address is
// released while it is still known.
func (a *addition) rememberAzure(assigned *types100.Result) error {
	if !a.isAzure() {
		return nil
	}
	first := assigned.IPs[0].Address
	subnet := net.IPNet{IP: first.IP.Mask(first.Mask), Mask: first.Mask}
	network := azureNetwork{Subnet: subnet.String()}
	endpoint := azureEndpoint{}
	for _, ip := range assigned.IPs {
		endpoint.Addresses = append(endpoint.Addresses, ip.Address.IP.String())
	}
	a.azure = &endpoint
	if err := writeState(a.azureNetworkFile(), network); err != nil {
		return err
	}
	return writeState(a.azureEndpointFile(), endpoint)
}

// azureRelease puts address and subnet into the document of a DEL. skip is true
// if no address is known: then there is nothing to release.
func (s *serving) azureRelease(call invocation.Call) (_ invocation.Call, skip bool, err error) {
	if !s.isAzure() {
		return call, false, nil
	}
	var endpoint azureEndpoint
	if s.azure != nil {
		endpoint = *s.azure
	} else if err := readState(s.azureEndpointFile(), &endpoint); err != nil {
		return call, false, err
	}
	if len(endpoint.Addresses) == 0 {
		return call, true, nil
	}
	var network azureNetwork
	if err := readState(s.azureNetworkFile(), &network); err != nil {
		return call, false, err
	}
	call, err = s.withIPAM(call, map[string]string{"ipAddress": endpoint.Addresses[0], "subnet": network.Subnet})
	return call, false, err
}

// forgetAzure removes the attachment's file, which a release made needless.
func (s *serving) forgetAzure() error {
	if !s.isAzure() {
		return nil
	}
	if err := os.Remove(s.azureEndpointFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cnierr.New(cnierr.InputOutput, "removing the state of the attachment: %w", err)
	}
	return nil
}

func (s *serving) withIPAM(call invocation.Call, members map[string]string) (invocation.Call, error) {
	document := s.Conf.Document()
	for key, value := range members {
		document.SetIPAM(key, value)
	}
	var err error
	call.Stdin, err = document.Bytes()
	return call, err
}

// readState leaves into as it is if the file does not exist.
func readState(path string, into any) error {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		return cnierr.New(cnierr.InputOutput, "reading the state file %s: %w; remove it if it is damaged", path, err)
	}
	return nil
}

// writeState replaces a file as a whole, so that a reader finds the old or the
// new content.
func writeState(path string, value any) error {
	content, err := json.Marshal(value)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path+".tmp", content, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		return cnierr.New(cnierr.InputOutput, "writing the state file %s: %w", path, err)
	}
	return nil
}
