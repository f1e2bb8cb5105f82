package etcdtest

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Calls counts, by method, the RPCs that the server has answered.
func (s *Server) Calls(t testing.TB) map[string]int {
	t.Helper()
	response, err := http.Get(s.metricsURL + "/metrics")
	if err != nil {
		t.Fatalf("reading the metrics of the etcd server: %v", err)
	}
	defer response.Body.Close()
	calls := map[string]int{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if method, count, ok := handled(lines.Text()); ok && count > 0 {
			calls[method] += count
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("reading the metrics of the etcd server: %v", err)
	}
	return calls
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
