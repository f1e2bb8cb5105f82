package contracttest

import (
	"context"
	"errors"
	"time"

	"calico-cni/pkg/datastore"
)

func deadlineTests() []test {
	return []test{
		{"Deadline/passed before the call", func(f *fixture) {
			ctx, cancel := context.WithDeadline(f.ctx, time.Now().Add(-time.Second))
			defer cancel()
			f.neverCalls(ctx)
		}},
		{"Deadline/cancelled before the call", func(f *fixture) {
			ctx, cancel := context.WithCancel(f.ctx)
			cancel()
			f.neverCalls(ctx)
		}},
	}
}

// neverCalls demands that a call whose time is over ends at once, writes
// nothing, and says so.
func (f *fixture) neverCalls(ctx context.Context) {
	f.Helper()
	_, readErr := f.store.Read(ctx, datastore.Get{Key: claimedHandle})
	_, writeErr := f.store.Write(ctx, claimSteps()...)
	for _, err := range []error{readErr, writeErr} {
		if !errors.Is(err, datastore.ErrUnavailable) || datastore.ReasonOf(err) != datastore.Unreachable {
			f.Errorf("the call ended with %v, want: unavailable, nothing written", err)
		}
		if !errors.Is(err, ctx.Err()) {
			f.Errorf("%v does not wrap %v", err, ctx.Err())
		}
	}
	f.absent(claimedHandle, affinityKey(host, claimed), blockKey(claimed))
}
