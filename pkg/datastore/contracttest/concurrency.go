package contracttest

import (
	"errors"
	"fmt"
	"sync"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

func concurrencyTests() []test {
	return []test{
		{"Concurrency/of competing creates one wins", func(f *fixture) {
			f.oneWins(datastore.Absent, datastore.ErrExists)
		}},
		{"Concurrency/of competing updates one wins", func(f *fixture) {
			f.oneWins(f.create(claimedHandle, handleOf(claimed, 100)), datastore.ErrConflict)
		}},
		{"Concurrency/no update is lost", noUpdateLost},
		{"Concurrency/a batch is one view", batchIsOneView},
	}
}

const competitors = 8

// oneWins lets several writers replace the same revision at once.
func (f *fixture) oneWins(revision datastore.Revision, loses error) {
	results := make([]error, competitors)
	var all sync.WaitGroup
	for i := range competitors {
		all.Go(func() {
			put := datastore.Put(claimedHandle, handleOf(claimed, i+1), revision)
			_, results[i] = f.store.Write(f.ctx, datastore.Step{put})
		})
	}
	all.Wait()
	winners := 0
	for i, err := range results {
		switch {
		case err == nil:
			winners++
			if found, _ := f.get(claimedHandle); found.(*model.Handle).Blocks[blockKey(claimed).CIDR] != i+1 {
				f.Errorf("writer %d won, but %+v is stored", i, found)
			}
		case !errors.Is(err, loses):
			f.Errorf("writer %d: %v", i, err)
		}
	}
	if winners != 1 {
		f.Errorf("%d writers won", winners)
	}
}

// noUpdateLost counts up in several writers, each reading again after a loss.
func noUpdateLost(f *fixture) {
	f.create(claimedHandle, handleOf(claimed, 0))
	var all sync.WaitGroup
	for range competitors {
		all.Go(func() {
			for {
				answers, err := f.store.Read(f.ctx, datastore.Get{Key: claimedHandle})
				if err != nil {
					f.Error(err)
					return
				}
				handle, revision := datastore.One[model.Handle](answers[0])
				count := handle.Blocks[blockKey(claimed).CIDR]
				put := datastore.Put(claimedHandle, handleOf(claimed, count+1), revision)
				if _, err = f.store.Write(f.ctx, datastore.Step{put}); err == nil {
					return
				}
				if !errors.Is(err, datastore.ErrConflict) {
					f.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	found, _ := f.get(claimedHandle)
	if count := found.(*model.Handle).Blocks[blockKey(claimed).CIDR]; count != competitors {
		f.Errorf("%d writers counted to %d", competitors, count)
	}
}

// batchIsOneView reads two objects that are always changed together.
func batchIsOneView(f *fixture) {
	if !f.store.Transactional() {
		return
	}
	a, b := model.HandleKey{ID: "net.a"}, model.HandleKey{ID: "net.b"}
	both := func(count int, atA, atB datastore.Revision) datastore.Step {
		return datastore.Step{datastore.Put(a, handleOf(claimed, count), atA), datastore.Put(b, handleOf(claimed, count), atB)}
	}
	written := f.write(both(0, datastore.Absent, datastore.Absent))
	var writer sync.WaitGroup
	writer.Go(func() {
		for count := range 20 {
			var err error
			if written, err = f.store.Write(f.ctx, both(count, written[a], written[b])); err != nil {
				f.Error(err)
				return
			}
		}
	})
	queries := make([]datastore.Query, 130) // more than a server takes at once
	for i := range queries {
		queries[i] = datastore.Get{Key: a}
	}
	queries[len(queries)-1] = datastore.Get{Key: b}
	for range 20 {
		answers := f.read(queries...)
		first, second := fmt.Sprint(answers[0].Entries[0].Value), fmt.Sprint(answers[len(answers)-1].Entries[0].Value)
		if first != second {
			f.Errorf("one batch found %s and %s", first, second)
		}
	}
	writer.Wait()
}
