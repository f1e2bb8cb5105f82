package ipam

import (
	"hash/fnv"
	"math/big"
	"math/rand"
	"net/netip"
	"time"
)

// blockRange numbers the blocks of a pool: block i begins i block sizes after
// the pool's first address.
type blockRange struct {
	pool netip.Prefix
	bits int
}

// count is the number of blocks; of a pool that is everything it is one less.
func (r blockRange) count() uint128 {
	if r.bits-r.pool.Bits() >= 128 {
		return uint128{hi: ^uint64(0), lo: ^uint64(0)}
	}
	return powerOfTwo(r.bits - r.pool.Bits())
}

func (r blockRange) at(index uint128) netip.Prefix {
	hostBits := r.pool.Addr().BitLen() - r.bits
	number := addressNumber(r.pool.Addr()).add(index.shiftLeft(hostBits))
	return netip.PrefixFrom(addressOf(number, r.pool.Addr().Is4()), r.bits)
}

// index is the number of the block that holds addr.
func (r blockRange) index(addr netip.Addr) uint128 {
	hostBits := r.pool.Addr().BitLen() - r.bits
	return addressNumber(addr).sub(addressNumber(r.pool.Addr())).shiftRight(hostBits)
}

// next is the block after index, round the end of the pool.
func (r blockRange) next(index uint128) uint128 {
	index = index.add(newUint128(1))
	if !index.less(r.count()) {
		return uint128{}
	}
	return index
}

// distance counts the steps from one index to another, round the end.
func (r blockRange) distance(from, to uint128) uint128 {
	if to.less(from) {
		return to.add(r.count()).sub(from)
	}
	return to.sub(from)
}

// covered counts the blocks from index on that a span covers; it covers the
// first of them.
func (r blockRange) covered(index uint128, held span) uint128 {
	last := lastAddress(r.pool)
	if held.last.Less(last) {
		last = held.last
	}
	end := r.index(last)
	if lastAddress(r.at(end)) == last {
		end = end.add(newUint128(1))
	}
	return end.sub(index)
}

// draw is a generator of block indices: the same for every request of a host,
// so that its requests converge on one new block while hosts spread (IPAM
// contract 5). Blocks of one address are searched from anywhere.
type draw struct {
	blocks blockRange
	random *rand.Rand
}

func newDraw(blocks blockRange, host string, now time.Time) *draw {
	seed := now.UnixNano()
	if blocks.bits < blocks.pool.Addr().BitLen() {
		hash := fnv.New32()
		_, _ = hash.Write([]byte(host)) // a hash never fails
		seed = int64(hash.Sum32())
	}
	return &draw{blocks: blocks, random: rand.New(rand.NewSource(seed))}
}

// next returns the next index; the first one is where the search begins.
func (d *draw) next() uint128 {
	return uint128FromBig(new(big.Int).Rand(d.random, d.blocks.count().big()))
}
