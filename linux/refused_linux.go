package linux

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
)

// refused is the error of something the kernel did not do: what was asked, of
// which object, the kernel's answer and what to do about it. An error that has
// a code already keeps it.
func refused(err error, format string, args ...any) error {
	doing := fmt.Sprintf(format, args...)
	var coded *cnierr.Error
	if errors.As(err, &coded) {
		return cnierr.Wrap(coded.Code, err, doing)
	}
	return cnierr.New(cnierr.NetlinkRefused, "%s: %w; %s", doing, err, remedy(err))
}

func remedy(err error) string {
	switch {
	case errors.Is(err, os.ErrPermission):
		return "the plugin must run as root with CAP_NET_ADMIN and CAP_SYS_ADMIN on the host"
	case errors.Is(err, unix.EROFS):
		return "/proc/sys must be writable where the plugin runs"
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.EAFNOSUPPORT):
		return "the kernel must have the address family enabled and the interface must still exist"
	case errors.Is(err, unix.ENODEV), errors.As(err, new(netlink.LinkNotFoundError)):
		return "somebody removed the interface meanwhile; the runtime may retry"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, unix.EAGAIN):
		return "the kernel or the host is overloaded; the runtime may retry, or raise timeout_seconds"
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "free memory or raise the limits of the host, then retry"
	case errors.Is(err, netlink.ErrDumpInterrupted):
		return "interfaces or routes of the host change too fast; retry"
	}
	return "see the kernel log for the reason, then retry"
}
