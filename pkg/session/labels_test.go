package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/netconf"
)

// TestLabelAffinities: the datastore is asked once per boot, and until it has
// answered.
func TestLabelAffinities(t *testing.T) {
	t.Parallel()
	var asked []string
	var failure error
	var stderr strings.Builder
	environment := Environment{
		Getenv: func(string) string { return "" }, Stderr: &stderr,
		Open: func(context.Context, *netconf.Config, string) (connect.Connection, error) {
			return connect.Connection{Store: memory.New(memory.Options{}), LabelAffinities: func(_ context.Context, host string) (int, error) {
				asked = append(asked, host)
				return 2, failure
			}}, nil
		},
	}
	document := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","type":"calico","nodename":"n1","ipam_lock_file":%q,"ipam":{"type":"calico-ipam"}}`,
		filepath.Join(t.TempDir(), "run", "ipam.lock"))
	label := func() error {
		s, err := Begin(environment, "calico", &invocation.Call{Verb: invocation.Add, ContainerID: "c1", IfName: "eth0", Stdin: []byte(document)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.End(&err)
		if err := errors.Join(s.Identify(), s.Connect(t.Context())); err != nil {
			t.Fatal(err)
		}
		return s.LabelAffinities(t.Context())
	}
	failure = &datastore.UnavailableError{Reason: datastore.Refused, Doing: "listing", Err: errors.New("forbidden")}
	if err := label(); cnierr.CodeOf(err) != cnierr.DatastoreRefused || !strings.Contains(err.Error(), "n1") {
		t.Errorf("refused: code %d, %v", cnierr.CodeOf(err), err)
	}
	failure = nil
	for range 2 {
		if err := label(); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Join(asked, " ") != "n1 n1" || !strings.Contains(stderr.String(), "number=2") {
		t.Errorf("asked for %v; log:\n%s", asked, stderr.String())
	}
}
