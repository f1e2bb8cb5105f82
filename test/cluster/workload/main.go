// Command workload is all that the image of the tests' pods holds: the sandbox's
// process, a server, and the clients that try whether pods reach each other.
//
//	workload                       waits to be terminated
//	workload serve PORT            answers each TCP connection with its host name
//	workload ping ADDRESS...       waits for an ICMP echo of each
//	workload connect HOST:PORT...  prints what each server answers
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const (
	// A neighbour that is still being resolved, or a host that is busy, makes
	// one try fail; only all of them together say that there is no way.
	oneTry  = time.Second
	allTime = 15 * time.Second
)

func main() {
	verb, arguments := "", []string(nil)
	if len(os.Args) > 1 {
		verb, arguments = os.Args[1], os.Args[2:]
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM, syscall.SIGINT)
	var err error
	switch {
	case verb == "":
		<-terminated
	case verb == "serve" && len(arguments) == 1:
		err = serve(arguments[0], terminated)
	case verb == "ping":
		err = all(arguments, ping)
	case verb == "connect":
		err = all(arguments, connect)
	default:
		err = fmt.Errorf("unknown arguments %q", os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers until it is told to terminate.
func serve(port string, terminated <-chan os.Signal) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("", port))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				ended <- err
				return
			}
			_, _ = io.WriteString(connection, name+"\n") // the client will miss it
			_ = connection.Close()
		}
	}()
	select {
	case <-terminated:
		return nil
	case err := <-ended:
		return err
	}
}

// all tries every target at once, each until it succeeds or time is up, and
// returns the first failure.
func all(targets []string, try func(target string) error) error {
	failures := make([]error, len(targets))
	deadline := time.Now().Add(allTime)
	var tries sync.WaitGroup
	for i, target := range targets {
		tries.Go(func() {
			for {
				began := time.Now()
				if failures[i] = try(target); failures[i] == nil || began.After(deadline) {
					return
				}
				time.Sleep(time.Until(began.Add(oneTry / 10))) // a refusal comes at once
			}
		})
	}
	tries.Wait()
	for i, err := range failures {
		if err != nil {
			return fmt.Errorf("%s: %w", targets[i], err)
		}
	}
	return nil
}

// connect prints what a server answers.
func connect(target string) error {
	connection, err := net.DialTimeout("tcp", target, oneTry)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(oneTry)); err != nil {
		return err
	}
	answer, err := io.ReadAll(connection)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(answer)
	return err
}
