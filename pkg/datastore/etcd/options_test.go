package etcd

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
)

func TestEndpoints(t *testing.T) {
	t.Parallel()
	records := map[string][]*net.SRV{
		"etcd-client-ssl.both.example": {{Target: "a.both.example.", Port: 2379}, {Target: "b.both.example.", Port: 2380}},
		"etcd-client.both.example":     {{Target: "c.both.example.", Port: 2379}},
		"etcd-client.plain.example":    {{Target: "c.plain.example.", Port: 2379}},
	}
	lookup := func(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
		if found := records[service+"."+name]; found != nil && proto == "tcp" {
			return "", found, nil
		}
		return "", nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	for name, row := range map[string]struct {
		options Options
		want    []string
		fails   string
	}{
		"URLs":           {options: Options{Endpoints: []string{" https://a:2379", "", "https://b:2379 "}}, want: []string{"https://a:2379", "https://b:2379"}},
		"bare":           {options: Options{Endpoints: []string{"a:2379"}}, want: []string{"http://a:2379"}},
		"bare with CA":   {options: Options{Endpoints: []string{"a:2379"}, CAFile: "ca"}, want: []string{"https://a:2379"}},
		"SRV, both":      {options: Options{DiscoverySRV: "both.example"}, want: []string{"https://a.both.example:2379", "https://b.both.example:2380"}},
		"SRV, plain":     {options: Options{DiscoverySRV: "plain.example"}, want: []string{"http://c.plain.example:2379"}},
		"SRV, none":      {options: Options{DiscoverySRV: "none.example"}, fails: "no such host"},
		"nothing":        {fails: "neither"},
		"only blanks":    {options: Options{Endpoints: []string{" "}}, fails: "neither"},
		"URLs and SRV":   {options: Options{Endpoints: []string{"a"}, DiscoverySRV: "both.example"}, fails: "exclude"},
		"schemes differ": {options: Options{Endpoints: []string{"http://a:1", "https://b:1"}}, fails: "mixes"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := row.options.endpoints(t.Context(), lookup)
			if row.fails != "" {
				if err == nil || !strings.Contains(err.Error(), row.fails) {
					t.Errorf("%q, %v; want an error that says %q", found, err, row.fails)
				}
				return
			}
			if err != nil || !slices.Equal(found, row.want) {
				t.Errorf("%q, %v; want %q", found, err, row.want)
			}
		})
	}
}
