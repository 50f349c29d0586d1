package datapath

import (
	"net/netip"

	"github.com/stretchr/testify/require"
)

// shared is the address of the tests' NATGateway.
const shared = "203.0.113.77"

func block(address string, first int) PortBlock { return PortBlock{addr(address), uint16(first)} }

// nat is what NATGateways are on all nodes: blocks by the node that has them and the Subnets that they are for.
type nat struct {
	cloud   *cloud
	blocks  map[*node][]PortBlock
	subnets map[PortBlock][]uint32
}

// newGateway gives Subnets a way out of the cloud, and no NATGateway yet.
func newGateway(c *cloud, vnis ...uint32) *nat {
	c.outside(vnis...)
	return &nat{cloud: c, blocks: map[*node][]PortBlock{}, subnets: map[PortBlock][]uint32{}}
}

// gives a node a block, with which it translates for Subnets.
func (g *nat) gives(n *node, b PortBlock, vnis ...uint32) {
	g.blocks[n] = append(g.blocks[n], b)
	g.subnets[b] = vnis
	g.sync()
}

// takes a block back.
func (g *nat) takes(n *node, b PortBlock) {
	var left []PortBlock
	for _, have := range g.blocks[n] {
		if have != b {
			left = append(left, have)
		}
	}
	g.blocks[n] = left
	g.sync()
}

func (g *nat) sync() {
	t := g.cloud.t
	for _, n := range g.cloud.nodes {
		s := NATState{Subnets: map[uint32][]PortBlock{}, Members: map[PortBlock]netip.Addr{}}
		for owner, blocks := range g.blocks {
			for _, b := range blocks {
				require.NoError(t, n.Externals.Set(netip.PrefixFrom(b.Address, 32), External{Kind: ExternalNAT}))
				s.Members[b] = owner.address
				if owner == n {
					s.Members[b] = netip.Addr{}
					for _, vni := range g.subnets[b] {
						s.Subnets[vni] = append(s.Subnets[vni], b)
					}
				}
			}
		}
		_, err := n.NAT.Sync(s)
		require.NoError(t, err)
		changes, err := n.NAT.Sync(s)
		require.NoError(t, err)
		require.Zero(t, changes, "the steady state writes")
	}
}
