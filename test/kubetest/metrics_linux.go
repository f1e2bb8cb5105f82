package kubetest

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Traffic reads from the server's own metrics how many requests it has answered
// that a plugin may send, and how many bytes it answered to those that read.
// Watches, which no plugin uses, are those of the server itself.
func (c *Cluster) Traffic() (requests, bytesRead int, err error) {
	text, err := c.admin.Try("GET", "/metrics", nil)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		requests += counted(lines.Text(), "apiserver_request_total{")
		bytesRead += counted(lines.Text(), "apiserver_response_sizes_sum{")
	}
	return requests, bytesRead, lines.Err()
}

// counted parses a line like
//
//	apiserver_request_total{code="200",…,resource="ipamblocks",…,verb="GET",…} 7
//
// It is 0 if the line is of another metric, or of no request of a plugin.
func counted(line, metric string) int {
	labels, ok := strings.CutPrefix(line, metric)
	if !ok {
		return 0
	}
	labels, number, _ := strings.Cut(labels, "} ")
	core := slices.Contains([]string{"pods", "nodes", "namespaces"}, label(labels, "resource"))
	if verb := label(labels, "verb"); verb == "WATCH" || !core && !strings.HasSuffix(label(labels, "group"), "projectcalico.org") {
		return 0
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0
	}
	return int(value)
}

func label(labels, name string) string {
	_, rest, _ := strings.Cut(","+labels, ","+name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
