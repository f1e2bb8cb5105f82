package datastore

import (
	"context"
	"sync"
)

// Prefetch reads the queries at once and returns a Store that answers each of
// them one time from what was read; everything else goes to store. So two
// parts of a program that read on their own can share one round trip without
// knowing of each other, and a decision taken again reads afresh.
func Prefetch(ctx context.Context, store Store, queries ...Query) (Store, error) {
	answers, err := store.Read(ctx, queries...)
	if err != nil {
		return nil, err
	}
	held := make(map[Query]Answer, len(queries))
	for i, query := range queries {
		held[query] = answers[i]
	}
	return &prefetched{Store: store, held: held}, nil
}

type prefetched struct {
	Store
	mu   sync.Mutex
	held map[Query]Answer
}

// Read answers from the batch only if it holds every query asked: a mixture of
// old and new answers would not be one consistent view.
func (p *prefetched) Read(ctx context.Context, queries ...Query) ([]Answer, error) {
	if answers, ok := p.take(queries); ok {
		return answers, nil
	}
	return p.Store.Read(ctx, queries...)
}

func (p *prefetched) take(queries []Query) ([]Answer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answers := make([]Answer, len(queries))
	for i, query := range queries {
		answer, ok := p.held[query]
		if !ok {
			return nil, false
		}
		answers[i] = answer
	}
	for _, query := range queries {
		delete(p.held, query)
	}
	return answers, true
}
