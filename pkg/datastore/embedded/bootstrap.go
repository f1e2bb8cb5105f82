package embedded

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Bootstrap says what the file must hold before it can serve.
type Bootstrap struct {
	// NodeName is the name of this host.
	NodeName string
	// Pools are declared in the network configuration. Defaults of members
	// that are not given are applied.
	Pools []*model.IPPool
}

// Open makes the file at path, its directory and what bootstrap asks for,
// unless it is all there already; then it writes nothing. The warnings tell of
// pools that exist but are not as declared: they are left alone, since
// addresses of theirs may be in use.
func Open(ctx context.Context, path string, bootstrap Bootstrap) (store *Store, warnings []string, err error) {
	store = &Store{file: file{path: path}}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := create(ctx, path); err != nil {
			return nil, nil, store.file.unavailable("making the datastore", err)
		}
	}
	for {
		missing, warnings, err := store.missing(ctx, bootstrap)
		if err != nil || len(missing) == 0 {
			return store, warnings, err
		}
		// Someone else may be doing the same: then look again.
		if _, err := store.Write(ctx, missing); !errors.Is(err, datastore.ErrExists) {
			return store, warnings, err
		}
	}
}

// missing returns the creates of what the file lacks.
func (s *Store) missing(ctx context.Context, bootstrap Bootstrap) (missing datastore.Step, warnings []string, err error) {
	wanted, err := bootstrap.objects()
	if err != nil {
		return nil, nil, err
	}
	queries := make([]datastore.Query, len(wanted))
	for i, create := range wanted {
		queries[i] = datastore.Get{Key: create.Key}
	}
	answers, err := s.Read(ctx, queries...)
	if err != nil {
		return nil, nil, err
	}
	for i, create := range wanted {
		if len(answers[i].Entries) == 0 {
			missing = append(missing, create)
		} else if warning := difference(create.Value, answers[i].Entries[0].Value); warning != "" {
			warnings = append(warnings, warning)
		}
	}
	return missing, warnings, nil
}

func (b Bootstrap) objects() ([]datastore.Mutation, error) {
	guid := make([]byte, 16)
	_, _ = rand.Read(guid) // never fails: it ends the process instead
	ready := true
	objects := []datastore.Mutation{
		resource(model.KindClusterInformation, model.ClusterInformationName, &model.ClusterInformation{
			Metadata: model.Metadata{Name: model.ClusterInformationName},
			GUID:     hex.EncodeToString(guid),
			Ready:    &ready,
		}),
		resource(model.KindNode, b.NodeName, &model.Node{Metadata: model.Metadata{Name: b.NodeName}}),
	}
	named := map[string]bool{}
	for _, declared := range b.Pools {
		pool := *declared
		pool.ApplyDefaults()
		if named[pool.Metadata.Name] {
			return nil, fmt.Errorf("pool %s is declared twice", pool.Metadata.Name)
		}
		named[pool.Metadata.Name] = true
		objects = append(objects, resource(model.KindIPPool, pool.Metadata.Name, &pool))
	}
	return objects, nil
}

func resource(kind model.Kind, name string, value any) datastore.Mutation {
	return datastore.Put(model.ResourceKey{Kind: kind, Name: name}, value, datastore.Absent)
}

// difference tells in what a pool is not as declared, of what cannot change
// while it is in use.
func difference(declared, existing any) string {
	want, ok := declared.(*model.IPPool)
	if !ok {
		return ""
	}
	have, ok := existing.(*model.IPPool)
	if !ok || sameRange(want, have) && want.BlockSize == have.BlockSize {
		return ""
	}
	return fmt.Sprintf("pool %s is declared as %s with block size %d, but exists as %s with block size %d, and stays so",
		want.Metadata.Name, want.RawCIDR, want.BlockSize, have.RawCIDR, have.BlockSize)
}

func sameRange(a, b *model.IPPool) bool {
	first, err := a.CIDR()
	if err != nil {
		return a.RawCIDR == b.RawCIDR
	}
	second, err := b.CIDR()
	return err == nil && first == second
}
