package gate

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Decide says what happens to a call: 0 lets it through, an errno refuses it.
// It may take as long as it likes and runs once per call, concurrently for
// calls of different threads.
type Decide func(Call) unix.Errno

// Gate is the deciding end.
type Gate struct {
	mine, theirs *os.File
}

// New makes a gate. Socket goes to the process that calls Install.
func New() (*Gate, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a system call gate: %w", err)
	}
	return &Gate{mine: os.NewFile(uintptr(ends[0]), "gate"), theirs: os.NewFile(uintptr(ends[1]), "gate")}, nil
}

// Socket is the end for the process that is to be gated.
func (g *Gate) Socket() *os.File { return g.theirs }

// Serve asks decide about every call until the gated process has ended. It
// must be called after that process was started.
func (g *Gate) Serve(decide Decide) error {
	defer g.mine.Close()
	g.theirs.Close()
	listener, err := g.receive()
	if err != nil {
		return err
	}
	defer unix.Close(listener)

	var pending sync.WaitGroup
	defer pending.Wait()
	ended := make(chan struct{})
	defer close(ended)
	for {
		notification, err := next(listener)
		if errors.Is(err, errEnded) {
			return nil
		}
		if err != nil {
			return err
		}
		call := describe(notification)
		call.Ended = ended
		pending.Go(func() {
			answer(listener, notification.ID, decide(call))
		})
	}
}

// receive takes the listener that Install sends.
func (g *Gate) receive() (int, error) {
	control := make([]byte, unix.CmsgSpace(4))
	var body [1]byte
	_, n, _, _, err := unix.Recvmsg(int(g.mine.Fd()), body[:], control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("waiting for the gated process: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		return 0, fmt.Errorf("the process to be gated ended before it was: %w", errors.Join(err, os.ErrClosed))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, fmt.Errorf("waiting for the gated process: %w", err)
	}
	return fds[0], nil
}

// notification and response are struct seccomp_notif and seccomp_notif_resp.
type notification struct {
	ID    uint64
	PID   uint32
	Flags uint32
	Data  struct {
		Number             int32
		Arch               uint32
		InstructionPointer uint64
		Args               [6]uint64
	}
}

type response struct {
	ID    uint64
	Value int64
	Error int32
	Flags uint32
}

var errEnded = errors.New("the gated process has ended")

// next waits for a call.
func next(listener int) (notification, error) {
	for {
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil {
			if err == unix.EINTR {
				continue
			}
			return notification{}, fmt.Errorf("waiting for a system call: %w", err)
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			return notification{}, errEnded
		}
		var n notification
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n)))
		switch errno {
		case 0:
			return n, nil
		case unix.EINTR, unix.ENOENT:
			// The caller was killed meanwhile.
		default:
			return notification{}, fmt.Errorf("receiving a system call: %w", errno)
		}
	}
}

// answer tells the kernel the decision. A caller that was killed meanwhile
// needs none, so errors mean nothing.
func answer(listener int, id uint64, refusal unix.Errno) {
	r := response{ID: id, Error: -int32(refusal)}
	if refusal == 0 {
		r.Flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	}
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
}
