package netconf

import (
	"fmt"

	"calico-cni/pkg/cnierr"
)

// dataplaneGRPC is the type of an external data plane.
const dataplaneGRPC = "grpc"

// Validate returns the first reason why ADD, CHECK and STATUS must refuse the
// configuration before anything is touched. DEL and GC need none of it: they
// warn and go on.
func (c *Config) Validate() error {
	if problems := c.invalid(); len(problems) > 0 {
		return problems[0]
	}
	return nil
}

// invalid returns all reasons.
func (c *Config) invalid() []error {
	var problems []error
	for _, path := range c.Placeholders {
		problems = append(problems, placeholderError(path))
	}
	for _, err := range []error{c.checkDevice(), c.checkDataplane(), c.checkTimeouts(), c.checkNames()} {
		if err != nil {
			problems = append(problems, err)
		}
	}
	for i, gate := range c.ReadinessGates {
		if _, err := ParseServerURL(fmt.Sprintf("readiness_gates[%d]", i), gate); err != nil {
			problems = append(problems, err)
		}
	}
	if _, err := c.IPAM.RouteDestinations(); err != nil && c.IPAM.Type == IPAMHostLocal {
		problems = append(problems, err)
	}
	return append(problems, checkPools(c.Pools)...)
}

func placeholderError(path string) error {
	return cnierr.New(cnierr.InvalidConfiguration,
		"network configuration key %s is still a placeholder: the installer did not fill it in, write a value or remove the key", path)
}

func (c *Config) checkDevice() error {
	switch c.DeviceType {
	case DeviceVeth, DeviceNetkit:
		return nil
	}
	return cnierr.New(cnierr.UnsupportedField,
		"network configuration key device_type: %q is not supported: use \"veth\" or \"netkit\"", c.DeviceType)
}

func (c *Config) checkDataplane() error {
	kind, present := c.DataplaneOptions["type"]
	if !present || kind == nil || kind == "" {
		return nil
	}
	text, isText := kind.(string)
	if !isText {
		return cnierr.New(cnierr.InvalidConfiguration,
			"network configuration key dataplane_options.type: want a string, found %s", found(kind))
	}
	if text != dataplaneGRPC {
		return cnierr.New(cnierr.UnsupportedField,
			"network configuration key dataplane_options.type: %q is not supported: use \"grpc\" or remove the key", text)
	}
	if socket, isText := c.DataplaneOptions["socket"].(string); !isText || socket == "" {
		return cnierr.New(cnierr.InvalidConfiguration,
			"network configuration key dataplane_options.socket: type \"grpc\" needs the path of a socket, found %s", found(c.DataplaneOptions["socket"]))
	}
	return nil
}

func (c *Config) checkTimeouts() error {
	if c.PolicySetupTimeoutSeconds < 0 {
		return cnierr.New(cnierr.InvalidConfiguration,
			"network configuration key policy_setup_timeout_seconds: %d is negative: use 0 to switch the wait off", c.PolicySetupTimeoutSeconds)
	}
	if c.requestedTimeout < 0 || c.requestedTimeout > maxTimeoutSeconds {
		return cnierr.New(cnierr.InvalidConfiguration,
			"network configuration key timeout_seconds: %d is not between 1 and %d", c.requestedTimeout, maxTimeoutSeconds)
	}
	return nil
}

// checkNames checks the node's names as far as they are in the configuration.
func (c *Config) checkNames() error {
	if err := checkNodeName("network configuration key nodename", c.Nodename); err != nil {
		return err
	}
	return checkNodeName("network configuration key hostname", c.Hostname)
}
