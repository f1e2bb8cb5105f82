package installer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"calico-cni/pkg/netconf"
)

// conflist is what the installer looks at in a rendered configuration. A
// configuration of one plugin is a list of one.
type conflist struct {
	// versions are those that a runtime may choose from; nil: it has no choice.
	versions []string
	// plugins are the types of the plugins, each once.
	plugins []string
	// warnings are what our plugin says to its part.
	warnings []string
}

// inspect reads a rendered configuration. It fails on what our plugin would
// refuse on every ADD.
func inspect(text []byte) (conflist, error) {
	var c conflist
	members, err := object(text)
	if err != nil {
		return conflist{}, err
	}
	plugins := []json.RawMessage{text}
	if given, isList := members["plugins"]; isList {
		plugins = nil // a decoder would write into the text
		if err := json.Unmarshal(given, &plugins); err != nil || len(plugins) == 0 {
			return conflist{}, errors.New(`key "plugins": want a list of at least one plugin`)
		}
		if given, ok := members["cniVersions"]; ok {
			if err := json.Unmarshal(given, &c.versions); err != nil {
				return conflist{}, errors.New(`key "cniVersions": want a list of texts`)
			}
		}
	}
	var problems []error
	for i, plugin := range plugins {
		kind, found, err := inspectPlugin(plugin, members)
		if err != nil {
			problems = append(problems, fmt.Errorf("plugin %d: %w", i+1, err))
			continue
		}
		c.warnings = append(c.warnings, found...)
		if !slices.Contains(c.plugins, kind) {
			c.plugins = append(c.plugins, kind)
		}
	}
	return c, errors.Join(problems...)
}

// inspectPlugin returns a plugin's type, and what our plugin says to its
// configuration if it is that.
func inspectPlugin(plugin json.RawMessage, list map[string]json.RawMessage) (kind string, warnings []string, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(plugin, &members); err != nil || members == nil {
		return "", nil, errors.New("want an object")
	}
	if err := json.Unmarshal(members["type"], &kind); err != nil || kind == "" || strings.ContainsAny(kind, `/\`) {
		return "", nil, errors.New(`key "type": want the name of a plugin's executable`)
	}
	if kind != "calico" {
		return kind, nil, nil
	}
	// As a runtime passes it.
	for _, key := range []string{"name", "cniVersion"} {
		if value, ok := list[key]; ok {
			members[key] = value
		}
	}
	passed, err := json.Marshal(members)
	if err != nil {
		return "", nil, fmt.Errorf("encoding the configuration of %s: %w", kind, err)
	}
	problems, warnings := netconf.Problems(passed)
	return kind, warnings, errors.Join(problems...)
}

// settle is the configuration that all its plugins can serve: without the
// choice of versions if one of them cannot serve each (network plugin contract
// 11). known holds the versions of each plugin that told them.
func settle(text []byte, c conflist, known map[string][]string) (_ []byte, warnings []string, err error) {
	for _, plugin := range c.plugins {
		versions, told := known[plugin]
		for _, version := range c.versions {
			if slices.Contains(versions, version) {
				continue
			}
			reason := "does not know version " + version + " of CNI"
			if !told {
				reason = "did not say which versions of CNI it knows"
			}
			warnings = append(warnings, fmt.Sprintf(
				"plugin %s %s: cniVersions is left out of the configuration, and with it STATUS and GC; install a newer %s", plugin, reason, plugin))
			break
		}
	}
	if len(warnings) == 0 {
		return text, nil, nil
	}
	text, err = cutMember(text, "cniVersions")
	return text, warnings, err
}
