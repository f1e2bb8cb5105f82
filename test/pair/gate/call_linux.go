package gate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Call is a system call that a process is about to make.
type Call struct {
	// Process is the short name of the executable, Name the call's.
	Process, Name string
	// Path is the file behind the call's descriptor.
	Path string
	// Exclusive is true for a flock that only one process can have.
	Exclusive bool
	// Waits is true for a flock that returns only when it has the lock.
	Waits bool
	// Message is the netlink request of a sendto.
	Message []byte
	// Ended is closed when the gated process is no more.
	Ended <-chan struct{}
}

// nlmsghdr is 16 bytes; the type is at 4, the flags are at 6.
const netlinkHeader = 16

// Type is the netlink request's type, such as RTM_NEWLINK; 0 if it is none.
func (c Call) Type() uint16 {
	if len(c.Message) < netlinkHeader {
		return 0
	}
	return binary.NativeEndian.Uint16(c.Message[4:])
}

// Flags are the netlink request's.
func (c Call) Flags() uint16 {
	if len(c.Message) < netlinkHeader {
		return 0
	}
	return binary.NativeEndian.Uint16(c.Message[6:])
}

// Holds reports whether the netlink request holds a text, such as a name.
func (c Call) Holds(text string) bool { return bytes.Contains(c.Message, []byte(text)) }

func (c Call) String() string {
	if c.Message == nil {
		mode := map[bool]string{true: " exclusive"}[c.Exclusive]
		return c.Process + " " + c.Name + " " + c.Path + mode
	}
	name, known := map[uint16]string{
		unix.RTM_NEWLINK: "NEWLINK", unix.RTM_DELLINK: "DELLINK", unix.RTM_GETLINK: "GETLINK", unix.RTM_SETLINK: "SETLINK",
		unix.RTM_NEWADDR: "NEWADDR", unix.RTM_GETADDR: "GETADDR",
		unix.RTM_NEWROUTE: "NEWROUTE", unix.RTM_GETROUTE: "GETROUTE", unix.RTM_GETNSID: "GETNSID", unix.RTM_NEWNSID: "NEWNSID",
	}[c.Type()]
	if !known {
		name = fmt.Sprintf("request %d", c.Type())
	}
	return c.Process + " netlink " + name
}

// describe reads what a call is about while its caller waits.
func describe(n notification) Call {
	proc := fmt.Sprintf("/proc/%d/", n.PID)
	comm, _ := os.ReadFile(proc + "comm")
	path, _ := os.Readlink(fmt.Sprintf("%sfd/%d", proc, n.Data.Args[0]))
	call := Call{Process: strings.TrimSpace(string(comm)), Path: path}
	for name, number := range Numbers {
		if number == uintptr(n.Data.Number) {
			call.Name = name
		}
	}
	switch call.Name {
	case "sendto":
		call.Message = memory(proc+"mem", n.Data.Args[1], n.Data.Args[2])
	case "flock":
		call.Exclusive = n.Data.Args[1]&unix.LOCK_EX != 0
		call.Waits = n.Data.Args[1]&unix.LOCK_NB == 0
	}
	return call
}

// memory copies a buffer out of the caller; nil if it is gone.
func memory(path string, address, length uint64) []byte {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	buffer := make([]byte, length)
	if _, err := file.ReadAt(buffer, int64(address)); err != nil {
		return nil
	}
	return buffer
}

// Index is the interface index in a link request (ifinfomsg, at 4).
func (c Call) Index() int {
	if len(c.Message) < netlinkHeader+8 {
		return 0
	}
	return int(int32(binary.NativeEndian.Uint32(c.Message[netlinkHeader+4:])))
}
