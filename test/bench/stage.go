//go:build linux

package main

import (
	"encoding/gob"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"calico-cni/test/bench/runner/job"
)

// stage is the host that the benchmark plays, with the servers it needs.
type stage struct {
	options
	engines []engine
	// stops end the servers.
	stops  []func()
	runner *exec.Cmd
	ask    *gob.Encoder
	answer *gob.Decoder
	// empty is the floor of all rows.
	empty *row
	pods  int
}

// newStage furnishes the namespaces that the process is in.
func newStage(o options) (*stage, error) {
	// Threads that are in a pod's namespace never get here.
	runtime.LockOSThread()
	s := &stage{options: o}
	if err := furnish(); err != nil {
		return nil, fmt.Errorf("furnishing the host: %w", err)
	}
	if err := wire(); err != nil {
		return nil, fmt.Errorf("wiring the host: %w", err)
	}
	if err := s.startRunner(); err != nil {
		return nil, fmt.Errorf("starting the runner: %w", err)
	}
	if err := s.startEngines(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// startEngines starts the datastores that were asked for, in that order.
func (s *stage) startEngines() error {
	var near, far *apiServer
	for _, name := range s.options.engines {
		switch name {
		case embedded:
			s.engines = append(s.engines, embeddedFile{})
		case etcd:
			e, err := startEtcd()
			if e != nil {
				s.stops = append(s.stops, e.server.Stop)
				s.engines = append(s.engines, e)
			}
			if err != nil {
				return err
			}
		default:
			if near == nil {
				var stop func()
				var err error
				near, far, stop, err = startKubernetes()
				if stop != nil {
					s.stops = append(s.stops, stop)
				}
				if err != nil {
					return err
				}
			}
			way := near
			if name == distant {
				way = far
			}
			s.engines = append(s.engines, way)
		}
	}
	return nil
}

func (s *stage) close() {
	for _, stop := range s.stops {
		stop()
	}
	_ = s.runner.Process.Kill() // its namespaces end with this process anyway
}

// furnish gives the host folders of its own, in memory.
func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, folder := range []string{"/run", "/var/lib"} {
		if err := unix.Mount("bench", folder, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", folder, err)
		}
	}
	return unix.Mount("proc", "/proc", "proc", 0, "")
}

// wire gives the host its loopback, an uplink and default routes, and forwards
// as a node does.
func wire() error {
	uplink := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "wire"}
	if err := netlink.LinkAdd(uplink); err != nil {
		return err
	}
	for _, name := range []string{"lo", "wire", "uplink"} {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("setting %s up: %w", name, err)
		}
	}
	address, err := netlink.ParseAddr("192.0.2.1/24")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(uplink, address); err != nil {
		return err
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: uplink.Attrs().Index, Gw: net.ParseIP("192.0.2.254")}); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

func (s *stage) startRunner() error {
	s.runner = exec.Command(filepath.Join(s.tools, "runner"))
	s.runner.Stderr = os.Stderr
	s.runner.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := s.runner.StdinPipe()
	if err != nil {
		return err
	}
	out, err := s.runner.StdoutPipe()
	if err != nil {
		return err
	}
	s.ask, s.answer = gob.NewEncoder(in), gob.NewDecoder(out)
	return s.runner.Start()
}

// execute runs commands at once; one that fails is an error.
func (s *stage) execute(commands ...job.Command) (job.Outcome, error) {
	var outcome job.Outcome
	if err := s.ask.Encode(job.Batch{Commands: commands}); err != nil {
		return outcome, fmt.Errorf("asking the runner: %w", err)
	}
	if err := s.answer.Decode(&outcome); err != nil {
		return outcome, fmt.Errorf("asking the runner: %w", err)
	}
	for i, run := range outcome.Runs {
		if run.Failure != "" {
			return outcome, fmt.Errorf("%s %s: %s: %s%s", commands[i].Path,
				strings.Join(commands[i].Environment, " "), run.Failure, run.Output, run.Log)
		}
	}
	return outcome, nil
}

// pod is a network namespace in which the loopback is down.
type pod struct{ name string }

func (p pod) path() string { return "/run/netns/" + p.name }

func (s *stage) newPod(e engine, node string) (pod, error) {
	s.pods++
	p := pod{name: fmt.Sprintf("pod%d", s.pods)}
	if err := p.makeNamespace(); err != nil {
		return p, fmt.Errorf("making a pod: %w", err)
	}
	return p, e.makePod(p, node)
}

func (p pod) makeNamespace() error {
	host, err := netns.Get()
	if err != nil {
		return err
	}
	defer host.Close()
	made, err := netns.NewNamed(p.name)
	if err != nil {
		return err
	}
	made.Close()
	return netns.Set(host)
}

func removePods(e engine, pods ...pod) error {
	for _, p := range pods {
		if err := netns.DeleteNamed(p.name); err != nil {
			return fmt.Errorf("removing a pod: %w", err)
		}
		if err := e.removePod(p); err != nil {
			return err
		}
	}
	return nil
}

// describe tells what the figures depend on.
func (s *stage) describe() string {
	var kernel unix.Utsname
	_ = unix.Uname(&kernel) // the release stays empty
	return fmt.Sprintf("%d processors, Linux %s, %s; servers on loopback without fsync, the embedded file in memory",
		runtime.NumCPU(), unix.ByteSliceToString(kernel.Release[:]), runtime.Version())
}
