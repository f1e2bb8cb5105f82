package datastore

import (
	"context"
	"sync"
)

// Memory is a Store that remembers the first answers it gave, for a second part
// of a program that begins with the same reads.
type Memory struct {
	Store
	mu   sync.Mutex
	most int
	held map[Query]Answer
}

// Remember returns a Memory of at most so many answers.
func Remember(store Store, most int) *Memory {
	return &Memory{Store: store, most: most, held: map[Query]Answer{}}
}

// Read implements Store.
func (m *Memory) Read(ctx context.Context, queries ...Query) ([]Answer, error) {
	answers, err := m.Store.Read(ctx, queries...)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.held)+len(queries) <= m.most {
		for i, query := range queries {
			m.held[query] = answers[i]
		}
	}
	return answers, nil
}

// Replay returns a Store that gives each remembered answer to the next Read
// that asks exactly for remembered ones, once, as that of Prefetch does. The
// writes of whoever decides on them are guarded by the revisions they tell.
func (m *Memory) Replay() Store {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.held
	m.held = map[Query]Answer{}
	return &prefetched{Store: m.Store, held: held}
}
