package netconf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"calico-cni/pkg/cnierr"
)

// Document is the configuration as the runtime sent it, to be changed and
// passed on to the IPAM plugin. Everything that is not changed, unknown keys
// and the spelling of numbers included, stays as it was.
type Document struct {
	root map[string]any
}

// Document returns a copy of the configuration's document; changing it does
// not change the configuration.
func (c *Config) Document() Document {
	root, _ := clone(c.document.root).(map[string]any)
	return Document{root: root}
}

// String does not show the document: it may hold credentials.
func (d Document) String() string { return "(network configuration)" }

// Given reports whether the configuration itself has a key, rather than its
// default.
func (c *Config) Given(key string) bool { return member(c.document.root, key) != nil }

// SetIPAM sets a member of the ipam object.
func (d Document) SetIPAM(key string, value any) {
	ipam, isObject := member(d.root, "ipam").(map[string]any)
	if !isObject {
		ipam = make(map[string]any)
		setMember(d.root, "ipam", ipam)
	}
	setMember(ipam, key, value)
}

// Ranges are the objects of the ipam section that may hold a subnet: the ipam
// object itself and each entry of ipam.ranges. Changing one changes the document.
func (d Document) Ranges() ([]Range, error) {
	ipam, isObject := member(d.root, "ipam").(map[string]any)
	if !isObject {
		return nil, wantAt("ipam", "an object", member(d.root, "ipam"))
	}
	ranges := []Range{{Path: "ipam", object: ipam}}
	sets, isList := member(ipam, "ranges").([]any)
	if !isList && member(ipam, "ranges") != nil {
		return nil, wantAt("ipam.ranges", "a list of lists", member(ipam, "ranges"))
	}
	for i, set := range sets {
		path := fmt.Sprintf("ipam.ranges[%d]", i)
		entries, isList := set.([]any)
		if !isList {
			return nil, wantAt(path, "a list of objects", set)
		}
		for j, entry := range entries {
			path := fmt.Sprintf("%s[%d]", path, j)
			object, isObject := entry.(map[string]any)
			if !isObject {
				return nil, wantAt(path, "an object", entry)
			}
			ranges = append(ranges, Range{Path: path, object: object})
		}
	}
	return ranges, nil
}

func wantAt(path, want string, value any) error {
	return cnierr.New(cnierr.InvalidConfiguration, "network configuration key %s: want %s, found %s", path, want, found(value))
}

// Bytes is the document as JSON.
func (d Document) Bytes() ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d.root); err != nil {
		return nil, fmt.Errorf("encoding the network configuration: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// Range is an object of the ipam section that may hold subnet, rangeStart and
// rangeEnd.
type Range struct {
	// Path says where it is, for messages.
	Path   string
	object map[string]any
}

// Text returns a member; ok is false if it is absent. A member that is no text
// is an error.
func (r Range) Text(key string) (text string, ok bool, err error) {
	value := member(r.object, key)
	if value == nil {
		return "", false, nil
	}
	text, isText := value.(string)
	if !isText {
		return "", false, wantAt(r.Path+"."+key, "a string", value)
	}
	return text, true, nil
}

// Set sets a member.
func (r Range) Set(key, value string) { setMember(r.object, key, value) }

// Family is an IP version.
type Family int

// The two IP versions.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// PodCIDRFamily tells which of the node's pod CIDRs a subnet stands for; ok is
// false for every other subnet.
func PodCIDRFamily(subnet string) (family Family, ok bool) {
	switch {
	case strings.EqualFold(subnet, "usePodCidr"):
		return IPv4, true
	case strings.EqualFold(subnet, "usePodCidrIPv6"):
		return IPv6, true
	}
	return 0, false
}

// member finds a key as encoding/json does. Parse refuses several spellings of
// the keys looked for here.
func member(object map[string]any, key string) any {
	if value, ok := object[key]; ok {
		return value
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if strings.EqualFold(name, key) {
			return object[name]
		}
	}
	return nil
}

// setMember leaves one spelling of the key, so that every reader finds the
// new value.
func setMember(object map[string]any, key string, value any) {
	maps.DeleteFunc(object, func(name string, _ any) bool { return strings.EqualFold(name, key) })
	object[key] = value
}

// clone copies objects and lists; what they hold otherwise never changes.
func clone(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, element := range v {
			out[key] = clone(element)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, element := range v {
			out[i] = clone(element)
		}
		return out
	}
	return value
}
