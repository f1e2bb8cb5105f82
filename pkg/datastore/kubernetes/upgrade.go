package kubernetes

import (
	"context"
	"errors"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Waits between the tries of LabelAffinities.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// LabelAffinities gives the affinities of a host that an old release wrote the
// labels by which they are found (datastore contract 4.3). Without them the
// host's own blocks are invisible to it. It tries again until the deadline and
// returns how many were labelled.
func (s *Store) LabelAffinities(ctx context.Context, host string) (int, error) {
	labelled := 0
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		count, err := s.labelOnce(ctx, host)
		labelled += count
		if err == nil || errors.Is(err, datastore.ErrUnavailable) && datastore.ReasonOf(err) == datastore.Refused {
			return labelled, err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait || pause(ctx, wait) != nil {
			return labelled, err
		}
	}
}

func (s *Store) labelOnce(ctx context.Context, host string) (int, error) {
	b := &batch{Store: s, group: s.Group(ctx)}
	found, err := b.entries(ctx, affinities(b.group), "!"+model.LabelAffinityType, model.AffinityKey{}, func(key model.Key) bool {
		return key.(model.AffinityKey).Host == host
	})
	if err != nil {
		return 0, err
	}
	var step datastore.Step
	for _, entry := range found.Entries {
		step = append(step, datastore.Put(entry.Key, entry.Value, entry.Revision))
	}
	written, err := s.Write(ctx, step)
	return len(written), err
}
