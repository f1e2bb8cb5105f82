package ipam

import (
	"errors"
	"fmt"
	"slices"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// ErrHandleHolds says that a handle which may hold one address per family has
// one, or is being given one by somebody else: look at what it holds, and
// decide anew. Nothing of the request was kept.
var ErrHandleHolds = errors.New("the handle holds an address of the family, or is just getting one")

// once keeps a handle to one address per family (IPAM contract 4 and 9).
type once struct {
	begun    bool
	revision datastore.Revision
}

// check returns what has to be read before it can tell. A handle that changed
// since the decision was first taken is somebody else's business as well: an
// engine without transactions counts before it allocates. What the handle
// counts and does not hold does not matter; it would be in the way for ever.
func (o *once) check(f *facts, id string, families ...model.Family) (needs []datastore.Query, err error) {
	if len(f.obtained) > 0 {
		return nil, nil // by this very request
	}
	handle := f.handles[id]
	if !o.begun {
		o.begun, o.revision = true, handle.revision
	}
	if handle.revision != o.revision {
		return nil, fmt.Errorf("%s: %w", model.HandleKey{ID: id}, ErrHandleHolds)
	}
	if handle.value == nil {
		return nil, nil
	}
	for _, cidr := range sortedPrefixes(handle.value.Blocks) {
		if !slices.Contains(families, model.FamilyOf(cidr.Addr())) {
			continue
		}
		block := f.blocks[cidr].value
		switch {
		case !f.known(cidr):
			needs = append(needs, datastore.Get{Key: model.BlockKey{CIDR: cidr}})
		case f.unreadable[cidr] || block != nil && len(block.Held(id)) > 0:
			return nil, fmt.Errorf("%s in block %s: %w", model.HandleKey{ID: id}, cidr, ErrHandleHolds)
		}
	}
	return needs, nil
}
