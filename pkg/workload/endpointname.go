package workload

import (
	"fmt"
	"strings"

	"calico-cni/pkg/cnierr"
)

// segment is one part of an endpoint name: what it is, for messages, and the
// code of the error if it cannot be one.
type segment struct {
	what  string
	value string
	code  cnierr.Code
}

// escaped is the segment as it stands in a name. A dash at either end could
// not be told from a separator, so it is refused.
func (s segment) escaped() (string, error) {
	if strings.HasPrefix(s.value, "-") || strings.HasSuffix(s.value, "-") {
		return "", cnierr.New(s.code,
			"cannot build the endpoint name: %s %q begins or ends with \"-\": choose another one", s.what, s.value)
	}
	return strings.ReplaceAll(s.value, "-", "--"), nil
}

// joinName builds a full name: every segment is needed.
func joinName(segments []segment) (string, error) {
	parts := make([]string, 0, len(segments))
	for _, s := range segments {
		if s.value == "" {
			return "", cnierr.New(s.code, "cannot build the endpoint name: the %s is empty", s.what)
		}
		part, err := s.escaped()
		if err != nil {
			return "", err
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "-"), nil
}

// joinPrefix builds the beginning of names: it stops before the first empty
// segment and ends with a separator.
func joinPrefix(segments []segment) (string, error) {
	var prefix strings.Builder
	for _, s := range segments {
		if s.value == "" {
			break
		}
		part, err := s.escaped()
		if err != nil {
			return "", err
		}
		prefix.WriteString(part + "-")
	}
	return prefix.String(), nil
}

// SplitEndpointName takes an endpoint name apart. third names the workload:
// the pod for orchestrator k8s, the container for cni.
func SplitEndpointName(name string) (node, orchestrator, third, endpoint string, err error) {
	parts := splitSegments(name)
	if len(parts) != 4 {
		return "", "", "", "", fmt.Errorf("endpoint name %q has %d segments, want 4", name, len(parts))
	}
	for _, part := range parts {
		if part == "" {
			return "", "", "", "", fmt.Errorf("endpoint name %q has an empty segment", name)
		}
	}
	return parts[0], parts[1], parts[2], parts[3], nil
}

// splitSegments: a lone dash separates, two are a literal one, and the first
// character never separates.
func splitSegments(name string) []string {
	var parts []string
	var part strings.Builder
	for i := 0; i < len(name); i++ {
		switch {
		case name[i] != '-':
			part.WriteByte(name[i])
		case i+1 < len(name) && name[i+1] == '-':
			part.WriteByte('-')
			i++
		case i == 0:
			part.WriteByte('-')
		default:
			parts = append(parts, part.String())
			part.Reset()
		}
	}
	return append(parts, part.String())
}
