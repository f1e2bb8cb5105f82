package connect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
)

func parse(t *testing.T, members string) *netconf.Config {
	t.Helper()
	conf, err := netconf.Parse([]byte(`{"cniVersion":"1.1.0","name":"net","type":"calico","ipam":{"type":"calico-ipam"}` + members + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return conf
}

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for _, pair := range pairs {
			if key, value, _ := strings.Cut(pair, "="); key == name {
				return value
			}
		}
		return ""
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	down := func(reason datastore.Reason) error {
		return fmt.Errorf("reading: %w", &datastore.UnavailableError{Reason: reason, Doing: "asking x", Err: errors.New("no")})
	}
	for name, test := range map[string]struct {
		err  error
		want cnierr.Code
	}{
		"none":          {nil, cnierr.Unclassified},
		"unreachable":   {down(datastore.Unreachable), cnierr.TryAgainLater},
		"unknown":       {down(datastore.OutcomeUnknown), cnierr.TryAgainLater},
		"refused":       {down(datastore.Refused), cnierr.DatastoreRefused},
		"locked":        {down(datastore.Locked), cnierr.LockNotObtained},
		"coded already": {cnierr.New(cnierr.NodeUnknown, "x: %w", down(datastore.Refused)), cnierr.NodeUnknown},
		"not the store": {errors.New("x"), cnierr.Unclassified},
		"a conflict":    {&datastore.ConflictError{Kind: datastore.ErrConflict, Key: model.IPAMConfigKey{}}, cnierr.Unclassified},
	} {
		got := Explain(test.err)
		if cnierr.CodeOf(got) != test.want || (got == nil) != (test.err == nil) || !errors.Is(got, test.err) {
			t.Errorf("%s: %v with code %d, want code %d", name, got, cnierr.CodeOf(got), test.want)
		}
	}
}

func TestOpenEmbedded(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cni", "datastore.db")
	conf := parse(t, `,"embedded_file":"`+file+`","pools":[{"cidr":"10.77.0.0/24","natOutgoing":true}]`)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := Inspect(environment())(ctx, conf, "n1"); cnierr.CodeOf(err) != cnierr.TryAgainLater || !strings.Contains(err.Error(), file) {
		t.Errorf("inspecting a file that does not exist: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("inspecting made the file")
	}
	connection, err := Open(environment())(ctx, conf, "n1")
	if err != nil || !connection.Embedded {
		t.Fatal(err)
	}
	inspected, err := Inspect(environment())(ctx, conf, "other")
	if err != nil {
		t.Fatal(err)
	}
	answers, err := inspected.Store.Read(ctx, datastore.ListResources{Kind: model.KindIPPool}, datastore.ListResources{Kind: model.KindNode})
	if err != nil {
		t.Fatal(err)
	}
	pool, isPool := answers[0].Entries[0].Value.(*model.IPPool)
	if !isPool || pool.Metadata.Name != "10-77-0-0-24" || !pool.NATOutgoing || len(answers[1].Entries) != 1 {
		t.Errorf("pool %+v, nodes %v", pool, answers[1].Entries)
	}
}

func TestExpectNoAgent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		members string
		getenv  func(string) string
		want    bool
	}{
		"embedded by default":      {"", environment(), true},
		"file named":               {`,"nodename_file":"/x"`, environment(), false},
		"demanded":                 {`,"nodename_file_optional":false`, environment(), false},
		"etcd":                     {`,"etcd_endpoints":"http://127.0.0.1:2379"`, environment(), false},
		"etcd by the environment":  {"", environment("ETCD_ENDPOINTS=http://127.0.0.1:2379"), false},
		"etcd, but optional":       {`,"etcd_endpoints":"http://127.0.0.1:2379","nodename_file_optional":true`, environment(), true},
		"embedded with a nodename": {`,"nodename":"n1"`, environment(), true},
	} {
		conf := parse(t, test.members)
		ExpectNoAgent(conf, test.getenv)
		if conf.NodenameFileOptional != test.want {
			t.Errorf("%s: optional %v, want %v", name, conf.NodenameFileOptional, test.want)
		}
	}
}
