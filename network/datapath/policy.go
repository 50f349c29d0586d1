package datapath

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Policy is what an interface may send, or what may reach it: whatever one of its rules admits. One without rules admits
// nothing.
type Policy struct{ Rules []Rule }

// Rule admits packets between the interface and peers. What answers them passes by itself.
type Rule struct {
	// Peers are the other side; none means everyone.
	Peers []Peer
	// Ports are what peers may use; none means everything.
	Ports []Ports
}

// Peer is a range of addresses without some ranges in it.
type Peer struct {
	Prefix netip.Prefix
	Except []netip.Prefix
}

// Ports are destination ports of a protocol. Of ICMP they are types and codes (see ICMPType); of the protocol 0, which stands
// for all, they must be AllPorts.
type Ports struct {
	Protocol    Protocol
	First, Last uint16
}

// AllPorts are all ports of a protocol.
func AllPorts(p Protocol) Ports { return Ports{p, 0, 0xffff} }

// ICMPType is one type of ICMP with all its codes (RFC 792).
func ICMPType(kind uint8) Ports { return Ports{ICMP, uint16(kind) << 8, uint16(kind)<<8 | 0xff} }

// ICMPCode is one code of one type of ICMP.
func ICMPCode(kind, code uint8) Ports {
	return Ports{ICMP, uint16(kind)<<8 | uint16(code), uint16(kind)<<8 | uint16(code)}
}

// What one policy may take in its two tables, which all interfaces of a node share.
const (
	// MaxPolicyPeers is how many ranges of peers a policy may tell apart.
	MaxPolicyPeers = 1 << 16
	// MaxPolicyRules is how many combinations of peers that the same rules speak of, and of ports that a prefix covers.
	MaxPolicyRules = 1 << 14
)

// compiled is a policy as the programs look it up.
type compiled struct {
	// peers leads to a class by the longest prefix; 0 is the class of those that no rule speaks of.
	peers map[netip.Prefix]uint32
	rules map[compiledRule]struct{}
}

// compiledRule admits a prefix of protocol (8 bits) and port (16 bits) to a class of peers.
type compiledRule struct {
	class    uint32
	bits     uint8 // 0: every protocol, 8: all ports of one, up to 24
	protocol Protocol
	match    uint16
}

var everyone = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// admitsAll tells whether a rule admits everything of everyone.
func (p Policy) admitsAll() bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool {
		all := len(r.Peers) == 0 || slices.ContainsFunc(r.Peers, func(p Peer) bool { return p.Prefix == everyone && len(p.Except) == 0 })
		return all && (len(r.Ports) == 0 || slices.Contains(r.Ports, AllPorts(0)))
	})
}

// digest identifies what the policy says, not what it means.
func (p Policy) digest() [sha256.Size]byte {
	h := sha256.New()
	write := func(prefix netip.Prefix) {
		b, _ := prefix.MarshalBinary()
		h.Write(append(b, byte(len(b))))
	}
	for _, r := range p.Rules {
		for _, peer := range r.Peers {
			write(peer.Prefix)
			for _, except := range peer.Except {
				h.Write([]byte{'-'})
				write(except)
			}
		}
		for _, ports := range r.Ports {
			h.Write([]byte{'p', byte(ports.Protocol), byte(ports.First >> 8), byte(ports.First), byte(ports.Last >> 8), byte(ports.Last)})
		}
		h.Write([]byte{'r'})
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// compile makes the tables of a policy. Peers that the same rules speak of become one class, so that the number of lookups is
// the same whatever the number of rules.
func compile(p Policy) (*compiled, error) {
	c := &compiled{peers: map[netip.Prefix]uint32{}, rules: map[compiledRule]struct{}{}}
	speaking, err := speakers(p)
	if err != nil {
		return nil, err
	}
	classes := map[string]uint32{}
	for _, prefix := range slices.SortedFunc(maps.Keys(speaking.prefixes), comparePrefixes) {
		rules := speaking.of(prefix)
		if len(rules) == 0 {
			c.peers[prefix] = 0
			continue
		}
		key := keyOf(rules)
		class, ok := classes[key]
		if !ok {
			class = uint32(len(classes) + 1)
			classes[key] = class
			if err := c.admit(class, p, rules); err != nil {
				return nil, err
			}
		}
		c.peers[prefix] = class
	}
	if len(c.peers) > MaxPolicyPeers {
		return nil, fmt.Errorf("policy of %d rules: %d ranges of peers are more than %d", len(p.Rules), len(c.peers), MaxPolicyPeers)
	}
	return c, nil
}

// speakers knows which rules speak of which peers.
type speakerIndex struct {
	// prefixes are all that a class must be known of.
	prefixes map[netip.Prefix]bool
	// at are the rules that speak of a range.
	at map[netip.Prefix][]speaker
}

type speaker struct {
	rule   int
	except []netip.Prefix
}

func speakers(p Policy) (speakerIndex, error) {
	s := speakerIndex{prefixes: map[netip.Prefix]bool{}, at: map[netip.Prefix][]speaker{}}
	for i, r := range p.Rules {
		peers := r.Peers
		if len(peers) == 0 {
			peers = []Peer{{Prefix: everyone}}
		}
		for _, ports := range r.Ports {
			if ports.First > ports.Last || (ports.Protocol == 0 && ports != AllPorts(0)) {
				return s, fmt.Errorf("rule %d: ports %v are no range of a protocol", i, ports)
			}
		}
		for _, peer := range peers {
			for _, prefix := range append([]netip.Prefix{peer.Prefix}, peer.Except...) {
				if !prefix.IsValid() || !prefix.Addr().Is4() || prefix != prefix.Masked() {
					return s, fmt.Errorf("rule %d: %v is not an IPv4 range in canonical form", i, prefix)
				}
				s.prefixes[prefix] = true
			}
			s.at[peer.Prefix] = append(s.at[peer.Prefix], speaker{i, peer.Except})
		}
	}
	return s, nil
}

// of are the rules that speak of the addresses whose longest known prefix this is.
func (s speakerIndex) of(prefix netip.Prefix) []int {
	var rules []int
	for bits := 0; bits <= prefix.Bits(); bits++ {
		around, _ := prefix.Addr().Prefix(bits)
		for _, speaker := range s.at[around] {
			excepted := slices.ContainsFunc(speaker.except, func(e netip.Prefix) bool { return e.Bits() <= prefix.Bits() && e.Contains(prefix.Addr()) })
			if !excepted {
				rules = append(rules, speaker.rule)
			}
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

func keyOf(rules []int) string {
	key := make([]byte, 0, 4*len(rules))
	for _, rule := range rules {
		key = binary.BigEndian.AppendUint32(key, uint32(rule))
	}
	return string(key)
}

// admit adds what rules admit to a class.
func (c *compiled) admit(class uint32, p Policy, rules []int) error {
	byProtocol := map[Protocol][]Ports{}
	for _, i := range rules {
		ports := p.Rules[i].Ports
		if len(ports) == 0 {
			ports = []Ports{AllPorts(0)}
		}
		for _, range_ := range ports {
			byProtocol[range_.Protocol] = append(byProtocol[range_.Protocol], range_)
		}
	}
	if len(byProtocol[0]) > 0 {
		c.rules[compiledRule{class: class}] = struct{}{}
		return nil
	}
	for protocol, ranges := range byProtocol {
		for _, r := range merge(ranges) {
			for _, prefix := range portPrefixes(r.First, r.Last) {
				c.rules[compiledRule{class, 8 + prefix.bits, protocol, prefix.first}] = struct{}{}
			}
		}
	}
	if len(c.rules) > MaxPolicyRules {
		return fmt.Errorf("policy of %d rules: more than %d combinations of peers and ports", len(p.Rules), MaxPolicyRules)
	}
	return nil
}

// merge joins ranges that meet.
func merge(ranges []Ports) []Ports {
	slices.SortFunc(ranges, func(a, b Ports) int { return cmp.Compare(a.First, b.First) })
	merged := []Ports{ranges[0]}
	for _, r := range ranges[1:] {
		last := &merged[len(merged)-1]
		if int(r.First) > int(last.Last)+1 {
			merged = append(merged, r)
			continue
		}
		last.Last = max(last.Last, r.Last)
	}
	return merged
}

type portPrefix struct {
	first uint16
	bits  uint8
}

// portPrefixes are the fewest prefixes that make up a range.
func portPrefixes(first, last uint16) []portPrefix {
	var prefixes []portPrefix
	for at := uint32(first); at <= uint32(last); {
		size := uint32(1)
		for size < 1<<16 && at&(2*size-1) == 0 && at+2*size-1 <= uint32(last) {
			size *= 2
		}
		bits := uint8(16)
		for s := size; s > 1; s /= 2 {
			bits--
		}
		prefixes = append(prefixes, portPrefix{uint16(at), bits})
		at += size
	}
	return prefixes
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
