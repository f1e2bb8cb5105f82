package datastore

import (
	"context"
	"slices"
	"sync"
)

// Prefetch reads two sets of queries at once. The answers to own are returned;
// the answers to held are kept by the returned Store, which gives each of them
// to the next Read that asks exactly for held ones, once. Everything else goes
// to store. So two parts of a program that read on their own can share one
// round trip without knowing of each other, and a decision taken again reads
// afresh.
func Prefetch(ctx context.Context, store Store, own, held []Query) ([]Answer, Store, error) {
	asked := make([]Query, 0, len(own)+len(held))
	for _, query := range slices.Concat(own, held) {
		if !slices.Contains(asked, query) {
			asked = append(asked, query)
		}
	}
	read, err := store.Read(ctx, asked...)
	if err != nil {
		return nil, nil, err
	}
	answers := make([]Answer, len(own))
	for i, query := range own {
		answers[i] = read[slices.Index(asked, query)]
	}
	kept := make([]Answer, len(held))
	for i, query := range held {
		kept[i] = read[slices.Index(asked, query)]
	}
	return answers, Hold(store, held, kept), nil
}

// Hold returns a store that has these answers already, as Prefetch's does.
func Hold(store Store, queries []Query, answers []Answer) Store {
	held := make(map[Query]Answer, len(queries))
	for i, query := range queries {
		held[query] = answers[i]
	}
	return &prefetched{Store: store, held: held}
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
