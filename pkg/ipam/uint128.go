package ipam

import (
	"encoding/binary"
	"math/big"
	"math/bits"
	"net/netip"
)

// uint128 counts addresses and blocks; IPv6 pools can hold 2^114 blocks.
type uint128 struct{ hi, lo uint64 }

func newUint128(n int) uint128 { return uint128{lo: uint64(n)} }

// powerOfTwo is 2^exponent, 0 from 128 on.
func powerOfTwo(exponent int) uint128 { return uint128{lo: 1}.shiftLeft(exponent) }

func (u uint128) add(v uint128) uint128 {
	lo, carry := bits.Add64(u.lo, v.lo, 0)
	hi, _ := bits.Add64(u.hi, v.hi, carry)
	return uint128{hi, lo}
}

func (u uint128) sub(v uint128) uint128 {
	lo, borrow := bits.Sub64(u.lo, v.lo, 0)
	hi, _ := bits.Sub64(u.hi, v.hi, borrow)
	return uint128{hi, lo}
}

func (u uint128) less(v uint128) bool {
	return u.hi < v.hi || u.hi == v.hi && u.lo < v.lo
}

func (u uint128) shiftLeft(n int) uint128 {
	if n >= 64 {
		return uint128{hi: u.lo << (n - 64)}
	}
	return uint128{hi: u.hi<<n | u.lo>>(64-n), lo: u.lo << n}
}

func (u uint128) shiftRight(n int) uint128 {
	if n >= 64 {
		return uint128{lo: u.hi >> (n - 64)}
	}
	return uint128{hi: u.hi >> n, lo: u.lo>>n | u.hi<<(64-n)}
}

// limited returns u, or max if u is larger.
func (u uint128) limited(max int) int {
	if u.hi != 0 || u.lo > uint64(max) {
		return max
	}
	return int(u.lo)
}

func (u uint128) big() *big.Int {
	n := new(big.Int).SetUint64(u.hi)
	return n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(u.lo))
}

func uint128FromBig(n *big.Int) uint128 {
	return uint128{hi: new(big.Int).Rsh(n, 64).Uint64(), lo: new(big.Int).And(n, maxUint64()).Uint64()}
}

func maxUint64() *big.Int { return new(big.Int).SetUint64(^uint64(0)) }

// addressNumber is the address as a number; IPv4 addresses count from 0.
func addressNumber(addr netip.Addr) uint128 {
	if addr.Is4() {
		four := addr.As4()
		return uint128{lo: uint64(binary.BigEndian.Uint32(four[:]))}
	}
	sixteen := addr.As16()
	return uint128{hi: binary.BigEndian.Uint64(sixteen[:8]), lo: binary.BigEndian.Uint64(sixteen[8:])}
}

// addressOf is the inverse of addressNumber.
func addressOf(n uint128, v4 bool) netip.Addr {
	if v4 {
		var four [4]byte
		binary.BigEndian.PutUint32(four[:], uint32(n.lo))
		return netip.AddrFrom4(four)
	}
	var sixteen [16]byte
	binary.BigEndian.PutUint64(sixteen[:8], n.hi)
	binary.BigEndian.PutUint64(sixteen[8:], n.lo)
	return netip.AddrFrom16(sixteen)
}
