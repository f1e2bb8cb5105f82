package netconf

import (
	"strings"
)

// RuntimeArgs is the args object.
type RuntimeArgs struct {
	Mesos Mesos `json:"org.apache.mesos"`
}

// Mesos is what the Mesos agent says of a container.
type Mesos struct {
	NetworkInfo NetworkInfo `json:"network_info"`
}

// NetworkInfo is the part of it that concerns the network.
type NetworkInfo struct {
	Labels LabelList `json:"labels"`
}

// LabelList is a list of labels as Mesos writes it.
type LabelList struct {
	Labels []Label `json:"labels"`
}

// Label is one label.
type Label struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// namespaceLabel carries the namespace of an endpoint outside Kubernetes.
const namespaceLabel = "projectcalico.org/namespace"

// Labels are the labels of an endpoint outside Kubernetes, keys and values
// sanitised. A key of which nothing is left is dropped; of equal keys the last
// one counts.
func (c *Config) Labels() map[string]string {
	listed := c.Args.Mesos.NetworkInfo.Labels.Labels
	labels := make(map[string]string, len(listed))
	for _, label := range listed {
		if key := sanitiseLabel(label.Key); key != "" {
			labels[key] = sanitiseLabel(label.Value)
		}
	}
	return labels
}

// LabelNamespace is the namespace that the labels ask for, or "".
func (c *Config) LabelNamespace() string {
	namespace := ""
	for _, label := range c.Args.Mesos.NetworkInfo.Labels.Labels {
		if label.Key == namespaceLabel {
			namespace = sanitiseLabel(label.Value)
		}
	}
	return namespace
}

// sanitiseLabel makes a text of Mesos a label (network plugin contract 6.3):
// "/" becomes "."; each run of other characters becomes "-"; a run of "." and
// "-" that holds a "." becomes one "."; none of both stays at the ends.
func sanitiseLabel(text string) string {
	return mergeDots(replaceForeign(strings.ReplaceAll(text, "/", ".")))
}

// replaceForeign puts one dash for each run of characters that labels cannot hold.
func replaceForeign(text string) string {
	var out strings.Builder
	foreign := false
	for i := range len(text) {
		c := text[i]
		if isAlphanumeric(c) || c == '-' || c == '_' || c == '.' {
			out.WriteByte(c)
			foreign = false
			continue
		}
		if !foreign {
			out.WriteByte('-')
		}
		foreign = true
	}
	return out.String()
}

func mergeDots(text string) string {
	var out strings.Builder
	text = strings.Trim(text, ".-")
	for text != "" {
		word := len(text) - len(strings.TrimLeftFunc(text, func(r rune) bool { return r != '.' && r != '-' }))
		out.WriteString(text[:word])
		text = text[word:]
		rest := strings.TrimLeft(text, ".-")
		if run := text[:len(text)-len(rest)]; strings.Contains(run, ".") {
			out.WriteByte('.')
		} else {
			out.WriteString(run)
		}
		text = rest
	}
	return out.String()
}
