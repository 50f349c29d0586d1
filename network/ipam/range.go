package ipam

import (
	"encoding/binary"
	"hash/fnv"
	"iter"
	"net/netip"
)

// Range is the addresses of an IPv4 CIDR that interfaces may have: all but the network's (the first), the gateway's (the
// one after it) and the broadcast address (the last).
type Range struct {
	// CIDR is canonical and between /8 and /30.
	CIDR netip.Prefix
}

// reserved is how many addresses of a CIDR no interface may have.
const reserved = 3

// Gateway is the gateway's address, the first that a host could have.
func (r Range) Gateway() netip.Addr { return r.CIDR.Masked().Addr().Next() }

// First is the lowest address an interface may have.
func (r Range) First() netip.Addr { return r.Gateway().Next() }

// Last is the highest address an interface may have.
func (r Range) Last() netip.Addr { return r.at(r.Capacity() - 1) }

// Capacity is how many interfaces the range has room for: 13 in a /28.
func (r Range) Capacity() uint64 {
	size := uint64(1) << (r.CIDR.Addr().BitLen() - r.CIDR.Bits())
	if size <= reserved {
		return 0
	}
	return size - reserved
}

// at is the i-th address an interface may have, from 0.
func (r Range) at(i uint64) netip.Addr {
	first := r.First().As4()
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(first[:])+uint32(i)) // i < 2^24: the CIDR is a /8 at most
	return netip.AddrFrom4(b)
}

// Candidates yields every address of the range once, from a place that the key decides and upwards, round the end. Keys
// spread evenly, so that many interfaces at once rarely try the same address.
func (r Range) Candidates(key string) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		capacity := r.Capacity()
		if capacity == 0 {
			return
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(key))
		start := mix(h.Sum64()) % capacity
		for i := range capacity {
			if !yield(r.at((start + i) % capacity)) {
				return
			}
		}
	}
}

// mix is the finalizer of SplitMix64: FNV alone leaves the low bits of similar keys alike.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Check returns what is wrong with an address asked for in the Subnet, or nil. The error is an *InvalidAddressError.
func (r Range) Check(subnet, address string) (netip.Addr, error) {
	invalid := func(problem string) (netip.Addr, error) {
		return netip.Addr{}, &InvalidAddressError{Address: address, Subnet: subnet, CIDR: r.CIDR, Problem: problem}
	}
	addr, err := netip.ParseAddr(address)
	switch {
	case err != nil || addr.String() != address:
		return invalid("is not an IPv4 address in dotted form")
	case !addr.Is4():
		return invalid("is not IPv4, and IPv6 is not supported yet")
	case !r.CIDR.Contains(addr):
		return invalid("is outside the Subnet")
	case addr == r.CIDR.Masked().Addr():
		return invalid("is the Subnet's network address")
	case addr == r.Gateway():
		return invalid("is the Subnet's gateway")
	case addr.Compare(r.Last()) > 0:
		return invalid("is the Subnet's broadcast address")
	}
	return addr, nil
}
