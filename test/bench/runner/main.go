//go:build linux

// Command runner executes what the benchmark measures. It imports little: the
// kernel counts the memory of the process that executes another towards the
// peak of the other, so that it must be smaller than anything measured.
package main

import (
	"bytes"
	"encoding/gob"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"calico-cni/test/bench/runner/job"
)

func main() {
	requests, answers := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	for {
		var batch job.Batch
		if requests.Decode(&batch) != nil || answers.Encode(execute(batch)) != nil {
			return // the benchmark has ended
		}
	}
}

// execute starts all commands of a batch at once and waits for all.
func execute(batch job.Batch) job.Outcome {
	outcome := job.Outcome{Runs: make([]job.Run, len(batch.Commands))}
	var all sync.WaitGroup
	began := time.Now()
	for i, command := range batch.Commands {
		all.Go(func() { outcome.Runs[i] = run(command) })
	}
	all.Wait()
	outcome.Wall = time.Since(began)
	return outcome
}

func run(c job.Command) job.Run {
	var out, log bytes.Buffer
	process := exec.Command(c.Path, c.Arguments...)
	process.Env = c.Environment
	process.Stdin, process.Stdout, process.Stderr = bytes.NewReader(c.Stdin), &out, &log
	began := time.Now()
	err := process.Run()
	done := job.Run{Wall: time.Since(began), Output: out.String(), Log: log.String()}
	if err != nil {
		done.Failure = err.Error()
	}
	if process.ProcessState != nil {
		done.CPU = process.ProcessState.UserTime() + process.ProcessState.SystemTime()
		// Linux counts in KiB: getrusage(2).
		done.PeakRSS = process.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	}
	return done
}
