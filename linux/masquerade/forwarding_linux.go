package masquerade

import (
	"bytes"
	"context"
	"os"

	"calico-cni/pkg/cnierr"
)

const sysctlRoot = "/proc/sys/net/"

// EnableForwarding makes the host forward packets of the families. It writes
// only what is off. Forwarding IPv6 makes the kernel ignore router
// advertisements on interfaces whose accept_ra is not 2.
func EnableForwarding(ctx context.Context, v4, v6 bool) error {
	if v4 {
		if err := enable(ctx, "ipv4/ip_forward", "net.ipv4.ip_forward"); err != nil {
			return err
		}
	}
	if v6 {
		return enable(ctx, "ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding")
	}
	return nil
}

func enable(ctx context.Context, path, name string) error {
	err := ctx.Err()
	if err == nil {
		err = writeUnlessOn(sysctlRoot + path)
	}
	if err != nil {
		return cnierr.New(cnierr.NetlinkRefused,
			"setting sysctl %s of the host to 1, without which pods reach nothing outside it: %w; set it by hand, or make /proc/sys writable for the plugin", name, err)
	}
	return nil
}

func writeUnlessOn(file string) error {
	value, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if string(bytes.TrimSpace(value)) == "1" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteString("1"); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
