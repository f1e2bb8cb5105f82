package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/keyspace"
	"calico-cni/pkg/model"
)

// Read implements datastore.Store: all requests go out together. A Get that
// meets an object whose deletion another writer began finishes it.
func (s *Store) Read(ctx context.Context, queries ...datastore.Query) ([]datastore.Answer, error) {
	for _, query := range queries {
		if _, err := keyspace.RangeOf(query); err != nil {
			return nil, fmt.Errorf("reading: %w", err)
		}
	}
	if len(queries) == 0 {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, unavailable(datastore.Unreachable, "reading "+keyspace.Names(queries), context.Cause(ctx))
	}
	b := &batch{Store: s, group: s.Group(ctx), fetched: map[string]*fetched{}}
	answers, errs := make([]datastore.Answer, len(queries)), make([]error, len(queries))
	together(len(queries), func(i int) { answers[i], errs[i] = b.answer(ctx, queries[i]) })
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// batch is one Read. Two queries that the same object answers, a pod and its
// endpoint say, cost one request.
type batch struct {
	*Store
	group model.APIGroup

	mu      sync.Mutex
	fetched map[string]*fetched
}

type fetched struct {
	once  sync.Once
	found *document
	err   error
}

func (b *batch) answer(ctx context.Context, query datastore.Query) (datastore.Answer, error) {
	answer, err := b.ask(ctx, query)
	var refusal *stale
	switch {
	case err == nil || errors.Is(err, datastore.ErrUnavailable):
		return answer, err
	case errors.As(err, &refusal):
		err = refusal.text
	}
	return datastore.Answer{}, unavailable(datastore.Unreachable, "reading the "+query.String(), err)
}

func (b *batch) ask(ctx context.Context, query datastore.Query) (datastore.Answer, error) {
	switch q := query.(type) {
	case datastore.Get:
		return b.get(ctx, q.Key)
	case datastore.ListAffinities:
		return b.listAffinities(ctx, q)
	case datastore.ListBlocks:
		return b.listBlocks(ctx, q)
	case datastore.ListHandles:
		return b.listHandles(ctx)
	case datastore.ListResources:
		return b.listResources(ctx, q)
	}
	return datastore.Answer{}, fmt.Errorf("%T is not a query", query)
}

func (b *batch) get(ctx context.Context, key model.Key) (datastore.Answer, error) {
	if resourceKey, ok := key.(model.ResourceKey); ok {
		switch resourceKey.Kind {
		case model.KindWorkloadEndpoint:
			return b.getEndpoint(ctx, resourceKey)
		case model.KindProfile:
			return datastore.Answer{}, nil // never stored: profiles are views of namespaces and accounts
		}
	}
	where, name, err := resourceOf(b.group, key)
	if err != nil {
		return datastore.Answer{}, err
	}
	found, err := b.fetch(ctx, where, name, key)
	if err != nil || found == nil {
		return datastore.Answer{}, err
	}
	entry, err := b.entry(b.group, key, *found)
	if err != nil {
		return datastore.Answer{}, err
	}
	if !same(entry.Key, key) {
		return datastore.Answer{}, fmt.Errorf("the object %s %s holds the %s", where, name, entry.Key)
	}
	entry.Key = key
	if deleted(entry.Value) {
		return b.finishDeletion(ctx, where, name, entry)
	}
	return datastore.Answer{Entries: []datastore.Entry{entry}}, nil
}

// same: handles whose ids differ only in case share an object.
func same(found, asked model.Key) bool {
	a, isHandle := found.(model.HandleKey)
	b, asksHandle := asked.(model.HandleKey)
	return found == asked || isHandle && asksHandle && strings.EqualFold(a.ID, b.ID)
}

// fetch gets an object, once per batch; nil if there is none.
func (b *batch) fetch(ctx context.Context, where resource, name string, key model.Key) (*document, error) {
	path := where.object(name)
	b.mu.Lock()
	f, ok := b.fetched[path]
	if !ok {
		f = &fetched{}
		b.fetched[path] = f
	}
	b.mu.Unlock()
	f.once.Do(func() { f.found, f.err = b.getDocument(ctx, where, name, key) })
	return f.found, f.err
}

func (s *Store) getDocument(ctx context.Context, where resource, name string, key model.Key) (*document, error) {
	body, err := s.send(ctx, request{
		doing: "reading the " + key.String(), verb: "get", resource: where.String(),
		method: http.MethodGet, path: where.object(name),
	})
	if errors.Is(err, datastore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d, err := parseDocument(body)
	if err != nil {
		return nil, fmt.Errorf("the answer is no object: %w", err)
	}
	return &d, nil
}

// finishTries bounds how often a deletion is begun again because the object
// was changed meanwhile.
const finishTries = 5

// finishDeletion deletes an object that is flagged and reports it absent,
// unless someone has put a living one in its place.
func (b *batch) finishDeletion(ctx context.Context, where resource, name string, entry datastore.Entry) (datastore.Answer, error) {
	key := entry.Key
	for range finishTries {
		err := b.deleteObject(ctx, where, name, key, entry.Revision)
		if !errors.Is(err, datastore.ErrConflict) {
			if errors.Is(err, datastore.ErrNotFound) {
				err = nil
			}
			return datastore.Answer{}, asRead(err)
		}
		found, err := b.getDocument(ctx, where, name, key)
		if err != nil || found == nil {
			return datastore.Answer{}, err
		}
		if entry, err = b.entry(b.group, key, *found); err != nil {
			return datastore.Answer{}, err
		}
		if entry.Key = key; !deleted(entry.Value) {
			return datastore.Answer{Entries: []datastore.Entry{entry}}, nil
		}
	}
	return datastore.Answer{}, errors.New("it is flagged as deleted, and others keep changing it")
}

// asRead: the caller of a read has no write whose outcome could be unknown.
func asRead(err error) error {
	var failed *datastore.UnavailableError
	if errors.As(err, &failed) && failed.Reason == datastore.OutcomeUnknown {
		return unavailable(datastore.Unreachable, failed.Doing, failed.Err)
	}
	return err
}
