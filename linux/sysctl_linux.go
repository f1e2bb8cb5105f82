package linux

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// sysctlRoot is where the sysctls of the calling thread's network namespace are.
const sysctlRoot = "/proc/sys/net/"

// writeSysctl sets one sysctl in the thread's namespace.
func writeSysctl(path, value string) error {
	fd, err := unix.Open(sysctlRoot+path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Write(fd, []byte(value))
	if err == nil && n < len(value) {
		err = io.ErrShortWrite
	}
	return err
}

// readSysctl reads one sysctl in the thread's namespace.
func readSysctl(path string) (string, error) {
	content, err := os.ReadFile(sysctlRoot + path)
	return strings.TrimSpace(string(content)), err
}

// writeSysctls sets them in order, in the thread's namespace; where tells whose
// they are. A failing optional one is a warning.
func (d *Dataplane) writeSysctls(all []sysctl, where string) error {
	for _, s := range all {
		err := d.kernel.writeSysctl(s.path, s.value)
		switch {
		case err == nil:
		case s.optional:
			d.log.Warn("sysctl not set", "sysctl", s.name(), "value", s.value, "where", where, "error", err)
		default:
			return refused(err, "setting sysctl %s to %s in %s", s.name(), s.value, where)
		}
	}
	return nil
}
