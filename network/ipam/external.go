package ipam

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"iter"
	"net/netip"
	"slices"
)

// Pool is what the allocator needs to know of an AddressPool.
type Pool struct {
	// Name of the AddressPool.
	Name string
	// CIDRs are its ranges, IPv4, /8 to /32. Every address of them can be had: they are routed, not a link's.
	CIDRs []netip.Prefix
}

// Capacity is how many addresses the pool has.
func (p Pool) Capacity() uint64 {
	var n uint64
	for _, cidr := range p.CIDRs {
		n += size(cidr)
	}
	return n
}

func size(cidr netip.Prefix) uint64 { return uint64(1) << (cidr.Addr().BitLen() - cidr.Bits()) }

// Contains tells whether an address is one of the pool's.
func (p Pool) Contains(address netip.Addr) bool {
	return slices.ContainsFunc(p.CIDRs, func(c netip.Prefix) bool { return c.Contains(address) })
}

// Candidates yields every address of the pool once, from a place that the key decides and upwards, round the end.
func (p Pool) Candidates(key string) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		capacity := p.Capacity()
		if capacity == 0 {
			return
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(key))
		start := mix(h.Sum64()) % capacity
		for i := range capacity {
			if !yield(p.at((start + i) % capacity)) {
				return
			}
		}
	}
}

// at is the i-th address of the pool, from 0.
func (p Pool) at(i uint64) netip.Addr {
	for _, cidr := range p.CIDRs {
		if n := size(cidr); i >= n {
			i -= n
			continue
		}
		first := cidr.Masked().Addr().As4()
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(first[:])+uint32(i)) // i < 2^24: the range is a /8 at most
		return netip.AddrFrom4(b)
	}
	return netip.Addr{}
}

// EnsureExternal returns the external address that an ExternalIP has, leasing one of the pool when it has none. It is Ensure for
// pools: the address in current is kept, else the wanted one is had or *InUseError told; when nothing is free: *ExhaustedError.
func (a *Allocator) EnsureExternal(ctx context.Context, pool Pool, holder Holder, want, current netip.Addr) (netip.Addr, error) {
	if current.IsValid() {
		want = current
	}
	return a.ensure(ctx, Network{Pool: pool.Name, VNI: ExternalVNI}, holder, want, current, pool.Candidates(string(holder.UID)),
		&ExhaustedError{Pool: pool.Name, Capacity: pool.Capacity(), Quarantine: a.quarantine(ExternalVNI)})
}
