package linux

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// TestNameAndAlias reads a message as the kernel writes it, and every beginning
// of it.
func TestNameAndAlias(t *testing.T) {
	t.Parallel()
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = 7
	message := info.Serialize()
	for _, attribute := range []*nl.RtAttr{
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("cali1")),
		nl.NewRtAttr(unix.IFLA_CARRIER, []byte{1}),
		nl.NewRtAttr(unix.IFLA_IFALIAS, nl.ZeroTerminated("calico-cni/net/c1/eth0")),
	} {
		message = append(message, attribute.Serialize()...)
	}
	got, err := nameAndAlias(message)
	if err != nil || got.index != 7 || got.name != "cali1" || got.alias != "calico-cni/net/c1/eth0" {
		t.Errorf("read %+v, %v", got, err)
	}
	for size := unix.SizeofIfInfomsg; size < len(message); size++ {
		got, err := nameAndAlias(message[:size])
		if err != nil && !errors.Is(err, unix.EBADMSG) || err == nil && got.alias != "" && got.alias != "calico-cni/net/c1/eth0" {
			t.Errorf("of %d bytes read %+v, %v", size, got, err)
		}
	}
}
