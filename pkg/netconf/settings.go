package netconf

import (
	"strconv"

	"calico-cni/pkg/cnierr"
)

// settings merges the configuration with the environment.
type settings struct {
	conf       *Config
	getenv     func(string) string
	fileExists func(string) bool
}

// setting is a value and where it was written, for messages.
type setting struct {
	value string
	key   string
}

// variable reads a variable of the environment. The name with prefix wins.
func (s settings) variable(name string) setting {
	if value := s.getenv("CALICO_" + name); value != "" {
		return setting{value, "CALICO_" + name}
	}
	return setting{s.getenv(name), name}
}

func (s settings) env(name string) string { return s.variable(name).value }

// pick prefers the configuration's value to the environment's.
func (s settings) pick(configured, key, variable string) setting {
	if configured != "" {
		return setting{configured, key}
	}
	return s.variable(variable)
}

func (s settings) boolean(name string) (bool, error) {
	v := s.variable(name)
	if v.value == "" {
		return false, nil
	}
	value, err := strconv.ParseBool(v.value)
	if err != nil {
		return false, cnierr.New(cnierr.InvalidConfiguration,
			"environment variable %s: %q is not a boolean: use true or false", v.key, v.value)
	}
	return value, nil
}

// maxRate is more than any client reaches; it keeps conversions exact.
const maxRate = 1_000_000

// rates are the client's limits; 0 means the default.
func (s settings) rates() (qps float32, burst int, given bool, err error) {
	queries, err := s.number(s.conf.QPS, "qps", "K8S_CLIENT_QPS")
	if err != nil {
		return 0, 0, false, err
	}
	bursts, err := s.number(s.conf.Burst, "burst", "K8S_CLIENT_BURST")
	if err != nil {
		return 0, 0, false, err
	}
	qps, burst = float32(queries), int(bursts)
	given = qps != 0 || burst != 0
	if qps == 0 {
		qps = defaultQPS
	}
	if burst == 0 {
		burst = defaultBurst
	}
	return qps, burst, given, nil
}

func (s settings) number(configured int, key, variable string) (float64, error) {
	text := ""
	if configured != 0 {
		text = strconv.Itoa(configured)
	}
	v := s.pick(text, key, variable)
	if v.value == "" {
		return 0, nil
	}
	value, err := strconv.ParseFloat(v.value, 32)
	if err != nil || !(value >= 0 && value <= maxRate) {
		return 0, cnierr.New(cnierr.InvalidConfiguration,
			"%s: %q is not a rate: use a number from 0 (the default) to %d", describeKey(v.key), v.value, int(maxRate))
	}
	return value, nil
}
