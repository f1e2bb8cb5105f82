package netconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/workload"
)

// Versions are the versions of the CNI specification that are served.
func Versions() []string {
	return []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
}

// defaultVersion is what a configuration without a version is taken for.
const defaultVersion = "0.1.0"

// Parse reads the configuration that a runtime writes on stdin. It fails on
// what no verb can work with; Validate finds what ADD cannot work with.
func Parse(stdin []byte) (*Config, error) {
	conf, problems := load(stdin, runtime.GOOS)
	if len(problems) > 0 {
		return nil, problems[0]
	}
	return conf, nil
}

// Problems returns everything that Parse and Validate have to say about a
// configuration, the first being the error they return, and the warnings.
func Problems(stdin []byte) (problems []error, warnings []string) {
	conf, problems := load(stdin, runtime.GOOS)
	if conf == nil {
		return problems, nil
	}
	return append(problems, conf.invalid()...), conf.Warnings
}

// load parses as much as can be parsed: conf is nil only if stdin is no JSON
// object at all.
func load(stdin []byte, goos string) (conf *Config, problems []error) {
	document, err := decode(stdin)
	if err != nil {
		return nil, []error{err}
	}
	conf = &Config{document: &Document{root: document}}
	conf.Placeholders = findPlaceholders(document)
	shape := fit(document)
	if err := conf.fill(shape.fitting); err != nil {
		return nil, []error{err}
	}
	conf.applyDefaults(goos)
	conf.Warnings = append(shape.warnings, conf.warnings()...)
	if err := checkVersion(conf.CNIVersion); err != nil {
		problems = append(problems, err)
	}
	problems = append(problems, shape.problems...)
	return conf, append(problems, conf.unusable(shape)...)
}

// decode reads one JSON object and nothing after it.
func decode(stdin []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(stdin)) == 0 {
		return nil, cnierr.New(cnierr.Undecodable, "network configuration: stdin is empty, want a JSON object")
	}
	decoder := json.NewDecoder(bytes.NewReader(stdin))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, cnierr.New(cnierr.Undecodable, "network configuration is not JSON (at byte %d): %w", offset(err, decoder), err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, cnierr.New(cnierr.Undecodable,
			"network configuration is not JSON: text follows the object (at byte %d)", decoder.InputOffset())
	}
	document, isObject := value.(map[string]any)
	if !isObject {
		return nil, cnierr.New(cnierr.InvalidConfiguration, "network configuration: want an object, found %s", found(value))
	}
	return document, nil
}

func offset(err error, decoder *json.Decoder) int64 {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return syntax.Offset
	}
	return decoder.InputOffset()
}

// fill sets the typed members from the part of the document that fits, not
// from stdin: so they always agree with the document that IPAM gets, also where
// stdin repeats a key.
func (c *Config) fill(fitting map[string]any) error {
	typed, err := json.Marshal(fitting)
	if err != nil {
		return cnierr.New(cnierr.Undecodable, "encoding the network configuration again: %w", err)
	}
	if err := json.Unmarshal(typed, c); err != nil {
		return cnierr.New(cnierr.InvalidConfiguration, "network configuration: %w", err)
	}
	return nil
}

func checkVersion(version string) error {
	if slices.Contains(Versions(), version) {
		return nil
	}
	return cnierr.New(cnierr.UnsupportedVersion,
		"network configuration key cniVersion: %q is not supported: use one of %s", version, strings.Join(Versions(), ", "))
}

// unusable are the errors that no verb can work with. A key that does not fit
// is reported already and not once more as missing.
func (c *Config) unusable(shape shape) []error {
	var problems []error
	if !shape.misfits("name") {
		if err := checkName(c.Name); err != nil {
			problems = append(problems, err)
		}
	}
	if c.IPAM.Type == "" && !shape.misfits("ipam") && !shape.misfits("ipam.type") {
		problems = append(problems, cnierr.New(cnierr.InvalidConfiguration,
			"network configuration key ipam.type is missing: name the IPAM plugin, for example \"calico-ipam\""))
	}
	return problems
}

func checkName(name string) error {
	if name == "" {
		return cnierr.New(cnierr.InvalidConfiguration,
			"network configuration key name is missing: name the network, for example \"k8s-pod-network\"")
	}
	return workload.ValidateNetworkName(name)
}
