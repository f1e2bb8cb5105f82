package job

import "time"

// Command is one process.
type Command struct {
	Path        string
	Arguments   []string
	Environment []string
	Stdin       []byte
}

// Batch is a set of processes that start at once.
type Batch struct{ Commands []Command }

// Run is what one process took.
type Run struct {
	// Wall is the time until it had ended; CPU is user and system time.
	Wall, CPU time.Duration
	// PeakRSS is the most memory it had resident, in bytes.
	PeakRSS int64
	// Failure is empty if it succeeded.
	Failure     string
	Output, Log string
}

// Outcome is what a batch took: Wall until the last process had ended.
type Outcome struct {
	Wall time.Duration
	Runs []Run
}
