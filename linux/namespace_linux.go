package linux

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// errNoNamespace says that a path leads to no network namespace: it is missing,
// or is the plain file that an unmounted namespace leaves behind.
var errNoNamespace = errors.New("no network namespace")

// openNamespace opens the network namespace at path.
func openNamespace(path string) (netns.NsHandle, error) {
	if path == "" {
		return netns.None(), fmt.Errorf("the path is empty: %w", errNoNamespace)
	}
	// O_NONBLOCK: the path may be a pipe, which would wait for a writer.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENXIO) {
		return netns.None(), fmt.Errorf("%s: %w (%w)", path, errNoNamespace, err)
	}
	if err != nil {
		return netns.None(), err
	}
	if !isNetworkNamespace(fd) {
		unix.Close(fd)
		return netns.None(), fmt.Errorf("%s exists but is %w", path, errNoNamespace)
	}
	return netns.NsHandle(fd), nil
}

// isNetworkNamespace asks the kernel what kind of namespace the file is; only
// files of its namespace filesystem answer.
func isNetworkNamespace(fd int) bool {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(fd, &stat); err != nil || stat.Type != unix.NSFS_MAGIC {
		return false
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	// Kernels before 4.11 do not know the question.
	return errors.Is(err, unix.ENOTTY) || err == nil && kind == unix.CLONE_NEWNET
}

// ownNamespace opens the network namespace of the calling thread.
func ownNamespace() (netns.NsHandle, error) {
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return netns.None(), refused(err, "opening the host's network namespace (/proc must be mounted)")
	}
	return netns.NsHandle(fd), nil
}

// within runs fn with the thread in ns. Only sysctls need that: sockets are
// bound to the namespace they were opened in.
func within(ns netns.NsHandle, fn func() error) (err error) {
	runtime.LockOSThread()
	origin, err := ownNamespace()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer origin.Close()
	if origin.Equal(ns) {
		defer runtime.UnlockOSThread()
		return fn()
	}
	if err := netns.Set(ns); err != nil {
		runtime.UnlockOSThread()
		return refused(err, "entering a network namespace")
	}
	defer func() {
		if back := netns.Set(origin); back != nil {
			// The thread stays locked, so that no other goroutine runs on it.
			err = errors.Join(err, refused(back, "returning to the host's network namespace"))
			return
		}
		runtime.UnlockOSThread()
	}()
	return fn()
}
