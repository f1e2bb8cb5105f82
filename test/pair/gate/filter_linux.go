package gate

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers are the system calls that can be gated, by name.
var Numbers = map[string]uintptr{
	"sendto":    unix.SYS_SENDTO,
	"flock":     unix.SYS_FLOCK,
	"pwrite64":  unix.SYS_PWRITE64,
	"ftruncate": unix.SYS_FTRUNCATE,
	"openat":    unix.SYS_OPENAT,
	"write":     unix.SYS_WRITE,
	"fchmod":    unix.SYS_FCHMOD,
	"fsync":     unix.SYS_FSYNC,
	"renameat":  unix.SYS_RENAMEAT,
	"unlinkat":  unix.SYS_UNLINKAT,

	"copy_file_range": unix.SYS_COPY_FILE_RANGE,
}

// Offsets in struct seccomp_data.
const (
	offsetNumber = 0
	offsetArch   = 4
)

// filter is the classic BPF program that notifies on the given calls and lets
// all others through.
func filter(numbers []uintptr) ([]unix.SockFilter, error) {
	arch, known := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !known {
		return nil, fmt.Errorf("no system call gate on %s", runtime.GOARCH)
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	answer := func(k uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
	}
	equal := uint16(unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K)

	program := []unix.SockFilter{
		load(offsetArch),
		{Code: equal, K: arch, Jt: 1},
		answer(unix.SECCOMP_RET_ALLOW),
		load(offsetNumber),
	}
	for _, number := range numbers {
		program = append(program,
			unix.SockFilter{Code: equal, K: uint32(number), Jf: 1},
			answer(unix.SECCOMP_RET_USER_NOTIF))
	}
	return append(program, answer(unix.SECCOMP_RET_ALLOW)), nil
}

// Install gates the calling thread, and what it executes, and sends the
// listener over the socket to the Gate that waits at its other end. The caller
// must have locked its thread.
func Install(socket int, calls []string) error {
	var numbers []uintptr
	for _, name := range calls {
		number, known := Numbers[name]
		if !known {
			return fmt.Errorf("system call %q cannot be gated", name)
		}
		numbers = append(numbers, number)
	}
	program, err := filter(numbers)
	if err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// Without the second flag a signal, such as the Go scheduler's, would
	// restart a waiting call and so count it twice.
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("installing the system call gate: %w", errno)
	}
	defer unix.Close(int(listener))
	if err := unix.Sendmsg(socket, []byte{0}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		return fmt.Errorf("handing over the system call gate: %w", err)
	}
	return nil
}
