package ipam

import (
	"context"
	"slices"

	"calico-cni/pkg/model"
)

// StaleHandles returns the ids whose addresses ReleaseStale would release, in
// order, and releases nothing.
func (a *Allocator) StaleHandles(ctx context.Context, r GCRequest) ([]string, error) {
	found, err := a.findStale(ctx, &r)
	ids := sortedKeys(found)
	for _, id := range r.NoteIDs {
		if id = model.HandleIDBefore(id); r.stale(id) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, err
}
