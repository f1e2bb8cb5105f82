package linux

import (
	"net/netip"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
)

func TestWithinLimits(t *testing.T) {
	t.Parallel()
	v6 := []netip.Addr{netip.MustParseAddr("fd00::7")}
	tests := []struct {
		name   string
		change func(*dataplane.Request)
		code   cnierr.Code
		word   string
	}{
		{"plain", func(*dataplane.Request) {}, 0, ""},
		{"dots and other characters", func(r *dataplane.Request) { r.Attachment.IfName = "eth0.5-é" }, 0, ""},
		{"ifname with a pattern", func(r *dataplane.Request) { r.Attachment.IfName = "eth%d" }, cnierr.InvalidEnvironment, "CNI_IFNAME"},
		{"ifname with a percent sign", func(r *dataplane.Request) { r.Attachment.IfName = "a%b" }, cnierr.InvalidEnvironment, "CNI_IFNAME"},
		{"ifname all", func(r *dataplane.Request) { r.Attachment.IfName = "all" }, cnierr.InvalidEnvironment, "CNI_IFNAME"},
		{"ifname default", func(r *dataplane.Request) { r.Attachment.IfName = "default" }, cnierr.InvalidEnvironment, "CNI_IFNAME"},
		{"prefix with a pattern", func(r *dataplane.Request) { r.HostInterface = "c%d0123456789a" }, cnierr.InvalidEnvironment, "FELIX_INTERFACEPREFIX"},
		{"smallest MTU", func(r *dataplane.Request) { r.MTU = 68 }, 0, ""},
		{"largest MTU", func(r *dataplane.Request) { r.MTU = 65535 }, 0, ""},
		{"MTU too small", func(r *dataplane.Request) { r.MTU = 67 }, cnierr.InvalidConfiguration, "68 to 65535"},
		{"negative MTU", func(r *dataplane.Request) { r.MTU = -1 }, cnierr.InvalidConfiguration, "MTU -1"},
		{"MTU too large", func(r *dataplane.Request) { r.MTU = 65536 }, cnierr.InvalidConfiguration, "MTU 65536"},
		{"MTU too small for IPv6", func(r *dataplane.Request) { r.MTU, r.Addresses = 1279, v6 }, cnierr.InvalidConfiguration, "1280"},
		{"MTU enough for IPv6", func(r *dataplane.Request) { r.MTU, r.Addresses = 1280, v6 }, 0, ""},
		{"many queues", func(r *dataplane.Request) { r.Queues = 4096 }, 0, ""},
		{"too many queues", func(r *dataplane.Request) { r.Queues = 4097 }, cnierr.InvalidConfiguration, "num_queues"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			req := dataplane.Request{Attachment: decideAttachment("own", "eth0"), HostInterface: "cali1", Queues: 1}
			test.change(&req)
			err := withinLimits(req)
			if test.code == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if cnierr.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.word) {
				t.Errorf("error %v (code %d), want code %d naming %q", err, cnierr.CodeOf(err), test.code, test.word)
			}
		})
	}
}
