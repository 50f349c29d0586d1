package instance

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Outside is how the instance meets the world beyond it.
type Outside struct {
	// Pool is the range of external addresses.
	Pool netip.Prefix `json:"pool,omitzero"`
	// Peer is the router that learns them from the nodes by BGP. Its zero value is the instance's own edge router.
	Peer Peer `json:"peer,omitzero"`
}

// Peer is a router of the machine's owner.
type Peer struct {
	// ASN is its autonomous system number.
	ASN uint32 `json:"asn"`
	// Address is its IPv4 address.
	Address netip.Addr `json:"address"`
}

// Numbers of autonomous systems, for private use (RFC 6996).
const (
	// ASN is the cloud's.
	ASN uint32 = 64512
	// EdgeASN is the edge router's.
	EdgeASN uint32 = 64513
)

// Edge tells whether the instance has an edge router of its own.
func (o Outside) Edge() bool { return o.Peer == Peer{} }

// String is ASN@ADDRESS.
func (p Peer) String() string {
	if p == (Peer{}) {
		return ""
	}
	return fmt.Sprintf("%d@%s", p.ASN, p.Address)
}

// ParsePeer reads ASN@ADDRESS.
func ParsePeer(s string) (Peer, error) {
	number, address, ok := strings.Cut(s, "@")
	asn, errASN := strconv.ParseUint(number, 10, 32)
	addr, errAddr := netip.ParseAddr(address)
	switch {
	case !ok || errASN != nil || errAddr != nil:
		return Peer{}, fmt.Errorf("--peer %q: write it as ASN@ADDRESS, such as 65000@192.168.1.1", s)
	case asn == 0 || asn == 23456 || asn == 65535 || asn == 4294967295:
		return Peer{}, fmt.Errorf("--peer %q: the number %d is reserved; it is the router's autonomous system number", s, asn)
	case !addr.Is4() || !addr.IsGlobalUnicast():
		return Peer{}, fmt.Errorf("--peer %q: %s is not an IPv4 address that a router can have", s, addr)
	}
	return Peer{ASN: uint32(asn), Address: addr}, nil
}

// ParsePool reads the range of external addresses, which must not meet the reserved ones.
func ParsePool(s string, reserved []netip.Prefix) (netip.Prefix, error) {
	pool, err := netip.ParsePrefix(s)
	if err != nil || !pool.Addr().Is4() {
		return pool, fmt.Errorf("--pool %q: write an IPv4 range, such as 192.168.50.0/24", s)
	}
	if pool != pool.Masked() {
		return pool, fmt.Errorf("--pool %s: it has bits set beyond the prefix length; write %s", pool, pool.Masked())
	}
	if pool.Bits() < 8 {
		return pool, fmt.Errorf("--pool %s: it must be between /8 and /32", pool)
	}
	for _, r := range reserved {
		if r.Overlaps(pool) {
			return pool, fmt.Errorf("--pool %s: it meets %s, which is reserved; choose another range", pool, r)
		}
	}
	return pool, nil
}
