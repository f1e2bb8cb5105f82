package etcdtest

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Traffic is what a server has done for its clients since it started.
type Traffic struct {
	// Calls counts the RPCs it has answered, by method.
	Calls map[string]int
	// Bytes is what it has received and sent, without the metrics themselves.
	Bytes int
}

// Traffic reads the server's own metrics.
func (s *Server) Traffic() (Traffic, error) {
	traffic := Traffic{Calls: map[string]int{}}
	response, err := http.Get(s.metricsURL + "/metrics")
	if err != nil {
		return traffic, fmt.Errorf("reading the metrics of the etcd server: %w", err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if method, count, ok := handled(lines.Text()); ok && count > 0 {
			traffic.Calls[method] += count
		}
		traffic.Bytes += moved(lines.Text())
	}
	if err := lines.Err(); err != nil {
		return traffic, fmt.Errorf("reading the metrics of the etcd server: %w", err)
	}
	return traffic, nil
}

// Calls counts, by method, the RPCs that the server has answered.
func (s *Server) Calls(t testing.TB) map[string]int {
	t.Helper()
	traffic, err := s.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	return traffic.Calls
}

// CallsDuring counts, by method, the RPCs that the server answers meanwhile.
func (s *Server) CallsDuring(t testing.TB, do func()) map[string]int {
	t.Helper()
	before := s.Calls(t)
	do()
	calls := s.Calls(t)
	for method, count := range before {
		if calls[method] -= count; calls[method] == 0 {
			delete(calls, method)
		}
	}
	return calls
}

// handled parses a line like
//
//	grpc_server_handled_total{grpc_code="OK",grpc_method="Txn",…} 7
func handled(line string) (method string, count int, ok bool) {
	labels, ok := strings.CutPrefix(line, "grpc_server_handled_total{")
	if !ok {
		return "", 0, false
	}
	_, rest, _ := strings.Cut(labels, `grpc_method="`)
	method, rest, _ = strings.Cut(rest, `"`)
	_, number, _ := strings.Cut(rest, "} ")
	value, err := strconv.ParseFloat(number, 64)
	return method, int(value), err == nil
}

// moved parses a line of the bytes that clients sent or were sent.
func moved(line string) int {
	for _, name := range []string{"etcd_network_client_grpc_received_bytes_total ", "etcd_network_client_grpc_sent_bytes_total "} {
		if number, ok := strings.CutPrefix(line, name); ok {
			bytes, err := strconv.ParseFloat(number, 64)
			if err == nil {
				return int(bytes)
			}
		}
	}
	return 0
}
