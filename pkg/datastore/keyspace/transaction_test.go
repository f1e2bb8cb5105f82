package keyspace

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

var (
	a      = model.HandleKey{ID: "net.a"}
	b      = model.HandleKey{ID: "net.b"}
	handle = &model.Handle{}
)

func mustCompile(t *testing.T, steps ...datastore.Step) Transaction {
	t.Helper()
	transaction, err := Compile(Identify, steps...)
	if err != nil {
		t.Fatal(err)
	}
	return transaction
}

func TestCompileMerges(t *testing.T) {
	t.Parallel()
	transaction := mustCompile(t,
		datastore.Step{datastore.Guard(a, "7"), datastore.Put(b, handle, datastore.Absent)},
		datastore.Step{datastore.Put(a, handle, "7"), datastore.Guard(b, datastore.Absent)},
		datastore.Step{datastore.Guard(a, "8")},
	)
	want := []Guard{{a, a.Path(), "7"}, {b, b.Path(), datastore.Absent}, {a, a.Path(), "8"}}
	if len(transaction.Guards) != len(want) {
		t.Fatalf("guards %v, want %v", transaction.Guards, want)
	}
	for i, guard := range transaction.Guards {
		if guard != want[i] {
			t.Errorf("guard %d is %v, want %v", i, guard, want[i])
		}
	}
	if len(transaction.Changes) != 2 || transaction.Changes[0].Key != b || transaction.Changes[1].Key != a {
		t.Errorf("changes %v", transaction.Changes)
	}
}

func TestCompileDeleteAny(t *testing.T) {
	t.Parallel()
	transaction := mustCompile(t, datastore.Step{datastore.Remove(a, datastore.Any)})
	if len(transaction.Guards) != 0 || len(transaction.Changes) != 1 || !transaction.Changes[0].Delete {
		t.Errorf("compiled to %+v", transaction)
	}
	if !mustCompile(t, datastore.Step{}, nil).Empty() {
		t.Error("empty steps are not empty")
	}
}

func TestCompileMistakes(t *testing.T) {
	t.Parallel()
	block := model.BlockKey{CIDR: netip.MustParsePrefix("10.77.3.64/26")}
	for name, step := range map[string]datastore.Step{
		"changed twice":           {datastore.Put(a, handle, datastore.Absent), datastore.Remove(a, datastore.Any)},
		"create at a revision":    {{Op: datastore.Create, Key: a, Value: handle, Revision: "7"}},
		"update of anything":      {{Op: datastore.Update, Key: a, Value: handle, Revision: datastore.Any}},
		"unknown operation":       {{Op: 17, Key: a}},
		"value of another block":  {datastore.Put(block, &model.Block{CIDR: netip.MustParsePrefix("10.77.3.0/26")}, datastore.Absent)},
		"value of another kind":   {datastore.Put(model.ResourceKey{Kind: model.KindNode, Name: "a"}, &model.IPPool{}, "7")},
		"value, not pointer":      {datastore.Put(a, model.Handle{}, datastore.Absent)},
		"nil resource":            {datastore.Put(model.ResourceKey{Kind: model.KindNode, Name: "a"}, (*model.Node)(nil), datastore.Absent)},
		"name of another":         {datastore.Put(model.ResourceKey{Kind: model.KindNode, Name: "a"}, &model.Node{Metadata: model.Metadata{Name: "b"}}, datastore.Absent)},
		"no key":                  {{Op: datastore.Expect}},
		"affinity without value":  {datastore.Put(model.AffinityKey{Type: "host", Host: "a", CIDR: block.CIDR}, nil, "7")},
		"configuration of a type": {datastore.Put(model.IPAMConfigKey{}, handle, "7")},
	} {
		if transaction, err := Compile(Identify, step); err == nil {
			t.Errorf("%s: compiled to %+v", name, transaction)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	at := func(path string, revision datastore.Revision) map[string]Record {
		return map[string]Record{path: {Path: path, Value: []byte(`{"block":{}}`), Revision: revision}}
	}
	for name, row := range map[string]struct {
		mutation datastore.Mutation
		current  map[string]Record
		want     error
	}{
		"create, absent":    {datastore.Put(a, handle, datastore.Absent), nil, nil},
		"create, there":     {datastore.Put(a, handle, datastore.Absent), at(a.Path(), "7"), datastore.ErrExists},
		"update, as read":   {datastore.Put(a, handle, "7"), at(a.Path(), "7"), nil},
		"update, changed":   {datastore.Put(a, handle, "7"), at(a.Path(), "8"), datastore.ErrConflict},
		"update, gone":      {datastore.Put(a, handle, "7"), nil, datastore.ErrNotFound},
		"delete, as read":   {datastore.Remove(a, "7"), at(a.Path(), "7"), nil},
		"delete, changed":   {datastore.Remove(a, "7"), at(a.Path(), "8"), datastore.ErrConflict},
		"delete, gone":      {datastore.Remove(a, "7"), nil, datastore.ErrNotFound},
		"delete any, there": {datastore.Remove(a, datastore.Any), at(a.Path(), "8"), nil},
		"expect, absent":    {datastore.Guard(a, datastore.Absent), nil, nil},
		"expect, there":     {datastore.Guard(a, datastore.Absent), at(a.Path(), "7"), datastore.ErrExists},
		"expect, as read":   {datastore.Guard(a, "7"), at(a.Path(), "7"), nil},
		"expect, changed":   {datastore.Guard(a, "7"), at(a.Path(), "8"), datastore.ErrConflict},
		"expect, gone":      {datastore.Guard(a, "7"), nil, datastore.ErrNotFound},
	} {
		conflict := mustCompile(t, datastore.Step{row.mutation}).Check(row.current)
		if (conflict != nil) != (row.want != nil) || conflict != nil && conflict.Kind != row.want {
			t.Errorf("%s: %v, want %v", name, conflict, row.want)
		}
	}
}

func TestIdentify(t *testing.T) {
	t.Parallel()
	v4 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 100 {
		var metadata model.Metadata
		Identify(&metadata)
		if !v4.MatchString(metadata.UID) || seen[metadata.UID] || time.Since(metadata.Created) > time.Minute {
			t.Fatalf("identity %+v", metadata)
		}
		seen[metadata.UID] = true
	}
}

// TestEveryResourceIsIdentified: on creation, never on update.
func TestEveryResourceIsIdentified(t *testing.T) {
	t.Parallel()
	metadata := model.Metadata{Name: "a", UID: "its own"}
	inShop := metadata
	inShop.Namespace = "shop"
	resources := map[model.Kind]any{
		model.KindIPPool:             &model.IPPool{Metadata: metadata},
		model.KindIPReservation:      &model.IPReservation{Metadata: metadata},
		model.KindNode:               &model.Node{Metadata: metadata},
		model.KindClusterInformation: &model.ClusterInformation{Metadata: metadata},
		model.KindProfile:            &model.Profile{Metadata: metadata},
		model.KindWorkloadEndpoint:   &model.WorkloadEndpoint{Metadata: inShop},
	}
	for _, kind := range model.Kinds() {
		key := model.ResourceKey{Kind: kind, Name: "a"}
		if kind.Namespaced() {
			key.Namespace = "shop"
		}
		for revision, want := range map[datastore.Revision]string{datastore.Absent: "given", "7": "its own"} {
			transaction, err := Compile(func(m *model.Metadata) { m.UID = "given" },
				datastore.Step{datastore.Put(key, resources[kind], revision)})
			if err != nil {
				t.Errorf("%s: %v", kind, err)
				continue
			}
			if value := string(transaction.Changes[0].Value); !strings.Contains(value, `"uid":"`+want+`"`) {
				t.Errorf("%s written at revision %q: %s, want UID %q", kind, revision, value, want)
			}
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	queries := []datastore.Query{datastore.Get{Key: a}, datastore.ListHandles{}}
	if names := Names(queries); names != "handle net.a, handles" {
		t.Errorf("names %q", names)
	}
	for len(queries) < 20 {
		queries = append(queries, datastore.ListHandles{})
	}
	if names := Names(queries); !strings.HasSuffix(names, ", and 12 more") {
		t.Errorf("names %q", names)
	}
	guards := mustCompile(t, datastore.Step{datastore.Guard(a, "7")})
	changes := mustCompile(t, datastore.Step{datastore.Guard(a, "7"), datastore.Remove(b, datastore.Any)})
	if guards.Names() != "handle net.a" || changes.Names() != "handle net.b" {
		t.Errorf("names %q, %q", guards.Names(), changes.Names())
	}
}
