package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// readPassing is read, except that a block whose document makes no sense is
// passed over with a warning: it must not keep a host from using its other
// blocks (IPAM contract 4 E 2). Only who looks for any address may do so; a
// release of an address must not take its block for missing.
func (e *engine) readPassing(ctx context.Context, queries ...datastore.Query) error {
	err := e.read(ctx, queries...)
	blocks, others := splitBlockGets(queries)
	if err == nil || len(blocks) == 0 || ctx.Err() != nil || datastore.ReasonOf(err) != datastore.Unreachable {
		return err
	}
	for _, cidr := range blocks {
		others = append(others, datastore.ListBlocks{
			Family: model.FamilyOf(cidr.Addr()), TextPrefix: strings.Replace(cidr.String(), "/", "-", 1), KeysOnly: true,
		})
	}
	if e.read(ctx, others...) != nil {
		return err // it is the datastore, not a block
	}
	for _, cidr := range blocks {
		if err := e.read(ctx, datastore.Get{Key: model.BlockKey{CIDR: cidr}}); err != nil {
			e.facts.unreadable[cidr] = true
			e.facts.census.add(cidr)
			e.log.Warn(fmt.Sprintf("block %s cannot be read and is passed over", cidr), "error", err)
		}
	}
	return nil
}

func splitBlockGets(queries []datastore.Query) (blocks []netip.Prefix, others []datastore.Query) {
	for _, query := range queries {
		if get, ok := query.(datastore.Get); ok {
			if key, ok := get.Key.(model.BlockKey); ok {
				blocks = append(blocks, key.CIDR)
				continue
			}
		}
		others = append(others, query)
	}
	return blocks, others
}
