package shortlived

import "syscall"

// slack is how late the kernel may wake the monitor, in nanoseconds.
const slack = "200000"

// calmMonitor lets the Go runtime's monitor sleep longer. Its thread looks
// every 20 µs for others that hang in a system call, which takes a fifth of a
// start (docs/performance.md); a fifth of a millisecond later is early enough for
// that. Beside our thread there are only the monitor and idle ones so early;
// those that come later have the slack of the thread that makes them, see
// timerslack_ns in proc_pid(5).
//
// It is best effort: without CAP_SYS_NICE or /proc all stays as it was.
func calmMonitor() {
	tasks, err := syscall.Open("/proc/self/task", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer syscall.Close(tasks)
	var entries [1024]byte
	n, err := syscall.ReadDirent(tasks, entries[:])
	if err != nil {
		return
	}
	_, _, threads := syscall.ParseDirent(entries[:n], -1, nil)
	own := decimal(syscall.Gettid())
	for _, thread := range threads {
		if thread != own {
			write("/proc/"+thread+"/timerslack_ns", slack)
		}
	}
}

func write(path, text string) {
	file, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer syscall.Close(file)
	_, _ = syscall.Write(file, []byte(text)) // best effort
}

// decimal is strconv.Itoa for what is not negative.
func decimal(n int) string {
	var digits [20]byte
	at := len(digits)
	for first := true; first || n > 0; first = false {
		at--
		digits[at] = byte('0' + n%10)
		n /= 10
	}
	return string(digits[at:])
}
