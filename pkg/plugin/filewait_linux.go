package plugin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// inotify is a watch of the kernel's.
type inotify struct{ events *os.File }

const (
	appears = unix.IN_CREATE | unix.IN_MOVED_TO
	ends    = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT | unix.IN_IGNORED
)

func watchDirectory(directory string) (directoryWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file system watch: %w", err)
	}
	if _, err := unix.InotifyAddWatch(fd, directory, appears|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_ONLYDIR); err != nil {
		_ = unix.Close(fd) // nothing was read or written
		return nil, fmt.Errorf("watching %s: %w", directory, err)
	}
	return inotify{os.NewFile(uintptr(fd), directory)}, nil
}

func (i inotify) close() { _ = i.events.Close() } // nothing was written

func (i inotify) next(ctx context.Context, deadline time.Time) error {
	if err := i.events.SetReadDeadline(deadline); err != nil {
		return err
	}
	// A deadline that is over ends a read that has begun.
	stop := context.AfterFunc(ctx, func() { _ = i.events.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var buffer [16 * (unix.SizeofInotifyEvent + unix.NAME_MAX + 1)]byte
	n, err := i.events.Read(buffer[:])
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		return err
	}
	return ended(buffer[:n])
}

// ended returns an error if one of the events says that the watch is over. An
// event is watch, mask, cookie, length of the name, name.
func ended(events []byte) error {
	for len(events) >= unix.SizeofInotifyEvent {
		if binary.NativeEndian.Uint32(events[4:])&ends != 0 {
			return errWatchEnded
		}
		name := int(binary.NativeEndian.Uint32(events[12:]))
		events = events[min(len(events), unix.SizeofInotifyEvent+name):]
	}
	return nil
}
