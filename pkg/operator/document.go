package operator

import (
	"math/big"

	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
)

// The JSON form of show. Counts of pools may exceed what JSON readers keep
// exactly, so they are numbers of any length.

type usageDocument struct {
	Pools         []poolDocument     `json:"pools"`
	Orphans       []blockDocument    `json:"blocksOutsidePools"`
	Borrowed      []borrowedDocument `json:"borrowed,omitempty"`
	WithoutNode   int                `json:"allocationsWithoutNode"`
	Configuration *model.IPAMConfig  `json:"configuration,omitempty"`
	Warnings      []string           `json:"warnings,omitempty"`
}

type poolDocument struct {
	Name     string          `json:"name"`
	CIDR     string          `json:"cidr"`
	Total    *big.Int        `json:"total"`
	InUse    *big.Int        `json:"inUse"`
	Reserved *big.Int        `json:"reserved"`
	Free     *big.Int        `json:"free"`
	Blocks   []blockDocument `json:"blocks,omitempty"`
}

type blockDocument struct {
	CIDR     string `json:"cidr"`
	Owner    string `json:"owner"`
	Total    int    `json:"total"`
	InUse    int    `json:"inUse"`
	Reserved int    `json:"reserved"`
	Free     int    `json:"free"`
}

type borrowedDocument struct {
	IP          string `json:"ip"`
	Node        string `json:"borrowingNode"`
	Block       string `json:"block"`
	Owner       string `json:"blockOwner"`
	Type        string `json:"type"`
	AllocatedTo string `json:"allocatedTo"`
}

func document(used *ipam.Usage, o options) usageDocument {
	doc := usageDocument{Pools: []poolDocument{}, Orphans: []blockDocument{}, WithoutNode: used.WithoutNode, Warnings: used.Warnings}
	for _, pool := range used.Pools {
		p := poolDocument{Name: pool.Name, CIDR: pool.CIDR.String(), Total: pool.Total, InUse: pool.InUse, Reserved: pool.Reserved, Free: pool.Free}
		if o.blocks {
			p.Blocks = blockDocuments(pool.Blocks)
		}
		doc.Pools = append(doc.Pools, p)
	}
	if o.blocks {
		doc.Orphans = append(doc.Orphans, blockDocuments(used.Orphans)...)
	}
	if o.borrowed {
		for _, b := range used.Borrowed {
			doc.Borrowed = append(doc.Borrowed, borrowedDocument{
				IP: b.Addr.String(), Node: b.Node, Block: b.Block.String(), Owner: b.Owner, Type: b.Type, AllocatedTo: b.AllocatedTo,
			})
		}
	}
	if o.configuration {
		doc.Configuration = used.Config
	}
	return doc
}

func blockDocuments(blocks []ipam.BlockUsage) []blockDocument {
	var docs []blockDocument
	for _, b := range blocks {
		docs = append(docs, blockDocument{CIDR: b.CIDR.String(), Owner: b.Owner, Total: b.Total, InUse: b.InUse, Reserved: b.Reserved, Free: b.Free})
	}
	return docs
}
