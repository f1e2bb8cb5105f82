package netconf

import (
	"net/netip"
	"net/url"
	"strings"

	"calico-cni/pkg/cnierr"
)

// ParseServerURL parses the URL of a server. key says where it was written.
// An IPv4 address in brackets, as old installers wrote it, is accepted.
func ParseServerURL(key, raw string) (*url.URL, error) {
	server, err := url.Parse(unbracket(strings.TrimSpace(raw)))
	// The cause is not wrapped: it may quote a part of a password.
	if err != nil || (server.Scheme != "http" && server.Scheme != "https") || server.Hostname() == "" {
		return nil, cnierr.New(cnierr.InvalidConfiguration,
			"%s: %q is not the URL of a server: write http://host:port or https://host:port", describeKey(key), redact(raw))
	}
	return server, nil
}

// describeKey names a key of the configuration; an upper-case one is a
// variable of the environment.
func describeKey(key string) string {
	if key == strings.ToUpper(key) {
		return "environment variable " + key
	}
	return "network configuration key " + key
}

// unbracket turns https://[192.0.2.1]:6443 into https://192.0.2.1:6443.
func unbracket(raw string) string {
	before, rest, found := strings.Cut(raw, "//[")
	if !found {
		return raw
	}
	host, after, found := strings.Cut(rest, "]")
	if addr, err := netip.ParseAddr(host); !found || err != nil || !addr.Is4() {
		return raw
	}
	return before + "//" + host + after
}

// redact hides what may be a credential in a URL that may be malformed.
func redact(raw string) string {
	raw, _, _ = strings.Cut(raw, "?")
	at := strings.LastIndexByte(raw, '@')
	if at < 0 {
		return raw
	}
	scheme, _, found := strings.Cut(raw, "//")
	if !found {
		return "…" + raw[at:]
	}
	return scheme + "//…" + raw[at:]
}
