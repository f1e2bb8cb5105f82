package operator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"calico-cni/pkg/netconf"
)

// noConfiguration serves if there is none: the environment names the datastore.
const noConfiguration = `{"name":"calico-ipam","type":"calico","ipam":{"type":"calico-ipam"}}`

// configuration reads the file named, else the first one of the directory that
// is this plugin's, in the order in which runtimes look.
func configuration(file, directory string) (*netconf.Config, error) {
	if file != "" {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the configuration: %w", err)
		}
		own, err := ownPlugin(content)
		if err != nil {
			return nil, fmt.Errorf("configuration %s: %w", file, err)
		}
		return parsed(own, file)
	}
	entries, err := os.ReadDir(directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for a configuration: %w", err)
	}
	for _, entry := range entries {
		if ext := filepath.Ext(entry.Name()); ext != ".conflist" && ext != ".conf" && ext != ".json" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			continue
		}
		if own, err := ownPlugin(content); err == nil {
			return parsed(own, filepath.Join(directory, entry.Name()))
		}
	}
	return netconf.Parse([]byte(noConfiguration))
}

func parsed(plugin []byte, file string) (*netconf.Config, error) {
	conf, err := netconf.Parse(plugin)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	return conf, nil
}

var errNotOurs = errors.New("no plugin of it is calico or uses calico-ipam: name another file")

// ownPlugin finds our plugin in a list or takes a single configuration, and
// gives it the list's name and version as a runtime does.
func ownPlugin(content []byte) ([]byte, error) {
	var list map[string]json.RawMessage
	if err := json.Unmarshal(content, &list); err != nil {
		return nil, fmt.Errorf("it is not a JSON object: %w", err)
	}
	raw, isList := list["plugins"]
	if !isList {
		if !isOurs(content) {
			return nil, errNotOurs
		}
		return content, nil
	}
	var plugins []json.RawMessage
	if err := json.Unmarshal(raw, &plugins); err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	for _, plugin := range plugins {
		if !isOurs(plugin) {
			continue
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(plugin, &members); err != nil {
			return nil, err
		}
		members["name"] = list["name"]
		if version, ok := list["cniVersion"]; ok {
			members["cniVersion"] = version
		}
		return json.Marshal(members)
	}
	return nil, errNotOurs
}

func isOurs(plugin []byte) bool {
	var named struct {
		Type string
		IPAM struct{ Type string }
	}
	return json.Unmarshal(plugin, &named) == nil &&
		(strings.TrimSuffix(named.Type, ".exe") == "calico" || named.IPAM.Type == netconf.IPAMCalico)
}
