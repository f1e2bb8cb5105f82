package installer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Render fills in a template and returns the network configuration for an
// operating system. A template whose members are called "linux" and "windows"
// serves both, and its member is the configuration; any other is one itself.
// Errors never quote the text: it may hold a token.
func render(template string, v values, goos string) ([]byte, error) {
	rendered := []byte(replacer(v).Replace(template))
	members, err := object(rendered)
	if err != nil {
		return nil, err
	}
	if !servesSystems(members) {
		return append(bytes.TrimSpace(rendered), '\n'), nil
	}
	member, ok := members[goos]
	if !ok {
		return nil, fmt.Errorf("the template has configurations for %s, but none for %s: add the member %q",
			strings.Join(slices.Sorted(maps.Keys(members)), ", "), goos, goos)
	}
	if _, err := object(member); err != nil {
		return nil, fmt.Errorf("member %q: %w", goos, err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, member, "", "  "); err != nil {
		return nil, fmt.Errorf("member %q of the template: %w", goos, err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// replacer goes over the text once: what a value looks like makes no
// difference.
func replacer(v values) *strings.Replacer {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		placeholder := "__" + name + "__"
		if v[name].bare {
			pairs = append(pairs, `"`+placeholder+`"`, v[name].text)
		}
		pairs = append(pairs, placeholder, v[name].text)
	}
	return strings.NewReplacer(pairs...)
}

func servesSystems(members map[string]json.RawMessage) bool {
	for name := range members {
		if name != "linux" && name != "windows" {
			return false
		}
	}
	return len(members) > 0
}

// object reads a text that must be one JSON object.
func object(text []byte) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	err := json.Unmarshal(text, &members)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("the rendered template is not JSON, from line %d on: check the template there, and the values of its placeholders",
			1+bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n")))
	case err != nil || members == nil:
		return nil, errors.New("the rendered template is not a JSON object")
	}
	return members, nil
}

// cutMember is an object's text without a member, however often it is there;
// the rest stays as it is.
func cutMember(text []byte, name string) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil {
		return nil, fmt.Errorf("reading the configuration again: %w", err)
	}
	before := decoder.InputOffset()
	for first := true; decoder.More(); first = false {
		key, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("reading the configuration again: %w", err)
		}
		var member json.RawMessage
		if err := decoder.Decode(&member); err != nil {
			return nil, fmt.Errorf("reading the configuration again: %w", err)
		}
		after := decoder.InputOffset()
		if key != name {
			before = after
			continue
		}
		rest := text[after:]
		if first {
			rest = bytes.TrimPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(","))
		}
		return cutMember(slices.Concat(text[:before], rest), name)
	}
	return text, nil
}
