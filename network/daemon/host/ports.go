package host

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// PortMapping leads a port of the host to an ordinary Pod of the node.
type PortMapping struct {
	// Protocol is unix.IPPROTO_TCP or IPPROTO_UDP.
	Protocol uint8
	// Host is the port, at one address of the host's (of loopback's, too) or, unspecified, at all but loopback's: what listens
	// there for the host alone is not taken over unasked.
	Host netip.AddrPort
	// Pod is where it leads.
	Pod netip.AddrPort
}

// Ports is the nftables table of Pods' host ports. Connections to a host's address are led to the Pod through the host's veth, as
// what the host sends itself. Pods answer other members and Pods directly, which would miss the translation back: towards the
// Pod these have the node's address; others keep theirs.
//
// A port at a loopback address is for the host's own connections. Their answers come from h0 to a loopback address, which Linux
// takes from other links only with route_localnet: that is on while there is such a port, and what is sent to a
// loopback address from there drops before it is translated back, so that nobody else gets at loopback (CVE-2020-8558).
type Ports struct {
	// Table is its name, one of our own.
	Table string
	// Near is the name of the host's veth (h0).
	Near string
	// Address is the node's.
	Address netip.Addr
	// Infrastructure is the range of Pods' infrastructure addresses.
	Infrastructure netip.Prefix
	// Resolver is the host's address that no port of all addresses is at: what tenants ask there is no Pod's to see.
	Resolver netip.Addr
}

const portsChain = "clients"

var loopback = netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)

// onLoopback tells whether one of the mappings is at a loopback address.
func onLoopback(mappings []PortMapping) bool {
	return slices.ContainsFunc(mappings, func(m PortMapping) bool { return m.Host.Addr().IsLoopback() })
}

// Ensure makes the table hold exactly these mappings, in one transaction; without any there is none. A table that is as it
// should be is not touched. Datagrams of a flow that led elsewhere before follow the mapping at once.
func (p Ports) Ensure(mappings []PortMapping, members []netip.Addr) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: p.Table}
	mark := sha256.Sum256(fmt.Appendf(nil, "ports 2 %+v %v %v", p, mappings, members))
	rules, err := conn.GetRules(table, &nftables.Chain{Table: table, Name: portsChain})
	exists := err == nil && len(rules) > 0
	if exists && bytes.Equal(rules[0].UserData, mark[:]) || !exists && len(mappings) == 0 {
		return p.routeLoopback(onLoopback(mappings)) // the link may be new
	}
	if !onLoopback(mappings) {
		if err := p.routeLoopback(false); err != nil {
			return err
		}
	}
	conn.AddTable(table) // a table must exist to be deleted
	conn.DelTable(table)
	if len(mappings) > 0 {
		p.fill(conn, table, mappings, members, mark[:])
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nftables table %s: %w", p.Table, err)
	}
	if onLoopback(mappings) {
		if err := p.routeLoopback(true); err != nil {
			return err
		}
	}
	return p.forget(mappings)
}

// routeLoopback lets what comes from the host's veth have a loopback address, or not.
func (p Ports) routeLoopback(on bool) error {
	const key = "route_localnet"
	value := "0"
	if on {
		value = "1"
	}
	present, err := getSysctl("ipv4", p.Near, key)
	if err == nil && present != value {
		err = setSysctl("ipv4", p.Near, key, value)
	}
	if err != nil {
		return fmt.Errorf("host ports on loopback: %w", err)
	}
	return nil
}

// Remove deletes the table. One that is not there is a success.
func (p Ports) Remove() error { return removeTable(p.Table) }

func (p Ports) fill(conn *nftables.Conn, table *nftables.Table, mappings []PortMapping, members []netip.Addr, mark []byte) {
	conn.AddTable(table)
	for name, hook := range map[string]*nftables.ChainHook{"arriving": nftables.ChainHookPrerouting, "sent": nftables.ChainHookOutput} {
		chain := conn.AddChain(&nftables.Chain{
			Table: table, Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: nftables.ChainPriorityNATDest,
		})
		for _, m := range mappings {
			if hook == nftables.ChainHookPrerouting && m.Host.Addr().IsLoopback() {
				continue // a neighbour that sends to a loopback address of ours is none of the host's
			}
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: m.rule(p.Resolver)})
		}
	}
	prefixes := append(hosts(members), p.Infrastructure.Masked())
	if onLoopback(mappings) {
		guard := conn.AddChain(&nftables.Chain{
			Table: table, Name: "guard", Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
		})
		conn.AddRule(&nftables.Rule{Table: table, Chain: guard, Exprs: p.guard()})
		prefixes = append(prefixes, loopback)
	}
	clients := conn.AddChain(&nftables.Chain{
		Table: table, Name: portsChain, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	for _, prefix := range prefixes {
		conn.AddRule(&nftables.Rule{Table: table, Chain: clients, UserData: mark, Exprs: p.snat(prefix)})
	}
}

func hosts(addresses []netip.Addr) []netip.Prefix {
	prefixes := make([]netip.Prefix, 0, len(addresses)+1)
	for _, a := range addresses {
		prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	return prefixes
}

// offsets of addresses in an IPv4 header.
const sourceOffset, destinationOffset = 12, 16

// within matches an address of the IPv4 header against a prefix.
func within(op expr.CmpOp, offset uint32, prefix netip.Prefix) []expr.Any {
	mask := binaryutil.BigEndian.PutUint32(uint32(uint64(0xffffffff) << (32 - prefix.Bits())))
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: 1, Data: prefix.Addr().AsSlice()},
	}
}

// rule is: fib daddr type local ip daddr != 127.0.0.0/8 ip daddr != RESOLVER (or ip daddr HOST) PROTOCOL dport PORT dnat to POD
func (m PortMapping) rule(resolver netip.Addr) []expr.Any {
	exprs := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{m.Protocol}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(m.Host.Port())},
	}
	if m.Host.Addr().IsUnspecified() {
		exprs = append(exprs,
			&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)})
		exprs = append(exprs, within(expr.CmpOpNeq, destinationOffset, loopback)...)
		if resolver.IsValid() {
			exprs = append(exprs, within(expr.CmpOpNeq, destinationOffset, netip.PrefixFrom(resolver, resolver.BitLen()))...)
		}
	} else {
		exprs = append(exprs, within(expr.CmpOpEq, destinationOffset, netip.PrefixFrom(m.Host.Addr(), 32))...)
	}
	return append(exprs,
		&expr.Immediate{Register: 1, Data: m.Pod.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(m.Pod.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2, Specified: true})
}

// ipsDestinationNAT is IPS_DST_NAT of the kernel's nf_conntrack_common.h.
const ipsDestinationNAT = 1 << 5

// link matches the host's veth.
func (p Ports) link(key expr.MetaKey) []expr.Any {
	near := make([]byte, unix.IFNAMSIZ)
	copy(near, p.Near)
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: near}}
}

// guard is: iifname NEAR ip daddr 127.0.0.0/8 drop
func (p Ports) guard() []expr.Any {
	exprs := append(p.link(expr.MetaKeyIIFNAME), within(expr.CmpOpEq, destinationOffset, loopback)...)
	return append(exprs, &expr.Verdict{Kind: expr.VerdictDrop})
}

// snat is: oifname NEAR ct status dnat ip saddr CLIENTS snat to ADDRESS
func (p Ports) snat(clients netip.Prefix) []expr.Any {
	status := binaryutil.NativeEndian.PutUint32(ipsDestinationNAT)
	exprs := append(p.link(expr.MetaKeyOIFNAME),
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: status, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)})
	return append(append(exprs, within(expr.CmpOpEq, sourceOffset, clients)...),
		&expr.Immediate{Register: 1, Data: p.Address.AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1})
}

// forget deletes flows of UDP to the host's ports that lead elsewhere than the mappings say: datagrams keep such a flow alive.
func (p Ports) forget(mappings []PortMapping) error {
	stale := staleFlows{}
	for _, m := range mappings {
		if m.Protocol != unix.IPPROTO_UDP {
			continue
		}
		at := m.Host
		if at.Addr().IsUnspecified() {
			at = netip.AddrPortFrom(p.Address, at.Port())
			if _, ok := stale[at]; ok {
				continue // one address goes before all
			}
		}
		stale[at] = m.Pod.Addr()
	}
	if len(stale) == 0 {
		return nil
	}
	if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.FAMILY_V4, stale); err != nil {
		return fmt.Errorf("forget flows of UDP to host ports: %w", err)
	}
	return nil
}

// staleFlows matches them: the Pod where each of the host's ports leads.
type staleFlows map[netip.AddrPort]netip.Addr

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s staleFlows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	to, _ := netip.AddrFromSlice(flow.Forward.DstIP)
	by, _ := netip.AddrFromSlice(flow.Reverse.SrcIP)
	pod, ok := s[netip.AddrPortFrom(to.Unmap(), flow.Forward.DstPort)]
	return ok && flow.Forward.Protocol == unix.IPPROTO_UDP && by.Unmap() != pod
}
