package loopback

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"calico-cni/windows/hns"
	"calico-cni/windows/hnssim"
)

// Server serves one simulated host.
type Server struct {
	engine   *hnssim.Engine
	host     *hnssim.Host
	listener net.Listener
	cancel   context.CancelFunc
	served   sync.WaitGroup
}

// Serve begins to serve; Close ends it.
func Serve(ctx context.Context, engine *hnssim.Engine) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the DLLs of HNS: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Server{engine: engine, host: engine.Host(), listener: listener, cancel: cancel}
	s.served.Go(func() { s.accept(ctx) })
	return s, nil
}

// Port is where the DLLs connect to.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// Close ends serving and waits for the calls that are being served.
func (s *Server) Close() error {
	s.cancel()
	err := s.listener.Close()
	s.served.Wait()
	return err
}

func (s *Server) accept(ctx context.Context) {
	for {
		connection, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.served.Go(func() {
			defer connection.Close()
			stop := context.AfterFunc(ctx, func() { connection.Close() })
			defer stop()
			s.serve(ctx, connection)
		})
	}
}

// serve answers the calls of one connection.
func (s *Server) serve(ctx context.Context, connection net.Conn) {
	in := bufio.NewReader(connection)
	for {
		call, err := readRequest(in)
		if err != nil {
			return
		}
		calling := ctx
		if call.locked {
			calling = hnssim.UnderLock(ctx)
		}
		answer, err := s.answer(calling, call)
		code := uint32(0)
		if err != nil {
			answer, code = record(err)
		}
		if _, err := fmt.Fprintf(connection, "%d %d\n%s", code, len(answer), answer); err != nil {
			return
		}
	}
}

// request is one call.
type request struct {
	function, id, payload string
	// locked: the network lock is held, by this caller as far as it can tell.
	locked bool
}

func readRequest(in *bufio.Reader) (request, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return request{}, err
	}
	var r request
	var length int
	if _, err := fmt.Sscanf(line, "%s %s %t %d\n", &r.function, &r.id, &r.locked, &length); err != nil || length < 0 {
		return request{}, fmt.Errorf("request %q", line)
	}
	if r.id == "-" {
		r.id = ""
	}
	payload := make([]byte, length)
	_, err = io.ReadFull(in, payload)
	r.payload = string(payload)
	return r, err
}

// record is an error as HNS describes it, and its HRESULT.
func record(err error) (string, uint32) {
	code := uint32(hns.CodeOf(err))
	switch {
	case code == 0:
		code = 0x80004005 // E_FAIL
	case code < 1<<16:
		code |= 0x80070000
	}
	var refused *hns.Error
	text := err.Error()
	if errors.As(err, &refused) {
		text = refused.Text
	}
	body, _ := json.Marshal(map[string]any{"Success": false, "Error": text + " ", "ErrorCode": code}) // always encodes
	return string(body), code
}

func (s *Server) answer(ctx context.Context, r request) (string, error) {
	for _, kind := range []hnssim.Kind{hnssim.Network, hnssim.Endpoint, hnssim.Namespace} {
		k := string(kind)
		switch r.function {
		case "Enumerate" + k + "s":
			ids, err := s.engine.Enumerate(ctx, kind, r.payload)
			if err != nil {
				return "", err
			}
			body, err := json.Marshal(ids)
			return string(body), err
		case "Create" + k:
			return s.engine.Create(ctx, kind, r.id, r.payload)
		case "Open" + k:
			return "", s.engine.Open(ctx, kind, r.id)
		case "Query" + k + "Properties":
			return s.engine.Query(ctx, kind, r.id)
		case "Modify" + k:
			return "", s.engine.Modify(ctx, kind, r.id, r.payload)
		case "Delete" + k:
			return "", s.engine.Delete(ctx, kind, r.id)
		}
	}
	return s.ofHost(ctx, r)
}

// ofHost answers what is no object of HNS.
func (s *Server) ofHost(ctx context.Context, r request) (string, error) {
	switch r.function {
	case "HNSCall":
		version, err := s.engine.GlobalVersion(ctx)
		return fmt.Sprintf(`{"Success":true,"Output":{"Major":%d,"Minor":%d}}`, version.Major, version.Minor), err
	case "Interfaces":
		interfaces, err := s.host.Interfaces()
		return describeInterfaces(interfaces), err
	case "Routes":
		routes, err := s.host.Routes()
		return describeRoutes(routes), err
	case "Forwarding":
		index, err := strconv.Atoi(r.id)
		if err != nil {
			return "", err
		}
		on, err := s.host.Forwarding(index)
		return fmt.Sprint(on), err
	case "EnableForwarding":
		index, err := strconv.Atoi(r.id)
		if err != nil {
			return "", err
		}
		return "", s.host.EnableForwarding(index)
	case "AddRoute":
		return "", s.addRoute(r.payload)
	}
	return "", fmt.Errorf("function %q is not simulated", r.function)
}

// describeInterfaces writes a line for each: index, MAC, addresses, name.
func describeInterfaces(interfaces []hns.Interface) string {
	var out strings.Builder
	for _, nic := range interfaces {
		mac, addresses := "-", "-"
		if len(nic.MAC) > 0 {
			mac = hex.EncodeToString(nic.MAC)
		}
		var texts []string
		for _, address := range nic.Addresses {
			texts = append(texts, address.String())
		}
		if len(texts) > 0 {
			addresses = strings.Join(texts, ",")
		}
		fmt.Fprintf(&out, "%d %s %s %s\n", nic.Index, mac, addresses, nic.Name)
	}
	return out.String()
}

// describeRoutes writes a line for each: destination, length, gateway,
// interface, metric.
func describeRoutes(routes []hns.HostRoute) string {
	var out strings.Builder
	for _, r := range routes {
		fmt.Fprintf(&out, "%s %d %s %d %d\n", r.Destination.Addr(), r.Destination.Bits(), r.Gateway, r.Interface, r.Metric)
	}
	return out.String()
}

func (s *Server) addRoute(line string) error {
	var destination, gateway string
	var bits, index int
	var metric uint32
	if _, err := fmt.Sscanf(line, "%s %d %s %d %d", &destination, &bits, &gateway, &index, &metric); err != nil {
		return fmt.Errorf("route %q: %w", line, err)
	}
	to, err := netip.ParseAddr(destination)
	if err != nil {
		return err
	}
	via, err := netip.ParseAddr(gateway)
	if err != nil {
		return err
	}
	return s.host.AddRoute(hns.HostRoute{Destination: netip.PrefixFrom(to, bits), Gateway: via, Interface: index, Metric: metric})
}
