package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Options says how to reach the cluster (datastore contract 1.2).
type Options struct {
	// Endpoints are URLs; a bare "host:port" is tolerated.
	Endpoints []string
	// DiscoverySRV is the DNS domain whose SRV records name the endpoints. It
	// excludes Endpoints.
	DiscoverySRV string
	// CertFile, KeyFile and CAFile are PEM files for TLS.
	CertFile, KeyFile, CAFile string
	// Username and Password log in if both are set.
	Username, Password string
}

// lookupSRV is net.Resolver.LookupSRV.
type lookupSRV func(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)

// endpoints returns the URLs to connect to, all of one scheme: the client
// takes the credentials for all of them by the first.
func (o Options) endpoints(ctx context.Context, lookup lookupSRV) ([]string, error) {
	given := o.given()
	switch {
	case len(given) > 0 && o.DiscoverySRV != "":
		return nil, errors.New("etcd_endpoints and etcd_discovery_srv exclude each other: set one")
	case len(given) == 0 && o.DiscoverySRV == "":
		return nil, errors.New("neither etcd_endpoints nor etcd_discovery_srv is set")
	case len(given) == 0:
		return discover(ctx, lookup, o.DiscoverySRV)
	}
	if slices.ContainsFunc(given, secure) && !allSecure(given) {
		return nil, fmt.Errorf("etcd_endpoints mixes https and http: %s", strings.Join(given, ","))
	}
	return given, nil
}

// given are the endpoints of the configuration, with a scheme each.
func (o Options) given() []string {
	var given []string
	for _, endpoint := range o.Endpoints {
		endpoint = strings.TrimSpace(endpoint)
		switch {
		case endpoint == "":
			continue
		case strings.Contains(endpoint, "://"):
		case o.CAFile != "" || o.CertFile != "":
			endpoint = "https://" + endpoint
		default:
			endpoint = "http://" + endpoint
		}
		given = append(given, endpoint)
	}
	return given
}

func secure(endpoint string) bool {
	return strings.HasPrefix(endpoint, "https://") || strings.HasPrefix(endpoint, "unixs://")
}

func allSecure(endpoints []string) bool {
	return !slices.ContainsFunc(endpoints, func(endpoint string) bool { return !secure(endpoint) })
}

// discover finds endpoints by DNS. If the domain offers both, those with TLS
// are taken.
func discover(ctx context.Context, lookup lookupSRV, domain string) ([]string, error) {
	found, secureErr := discoverService(ctx, lookup, "etcd-client-ssl", "https", domain)
	if len(found) > 0 {
		return found, nil
	}
	found, plainErr := discoverService(ctx, lookup, "etcd-client", "http", domain)
	if len(found) > 0 {
		return found, nil
	}
	return nil, fmt.Errorf("no SRV records name etcd servers: %w", errors.Join(secureErr, plainErr))
}

func discoverService(ctx context.Context, lookup lookupSRV, service, scheme, domain string) ([]string, error) {
	_, records, err := lookup(ctx, service, "tcp", domain)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, record := range records {
		address := net.JoinHostPort(strings.TrimSuffix(record.Target, "."), strconv.Itoa(int(record.Port)))
		found = append(found, scheme+"://"+address)
	}
	return found, nil
}
