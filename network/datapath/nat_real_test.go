package datapath

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// nat gives each node a block of an external address, with which it translates for a Subnet.
func (r *reality) nat(gateways map[uint32]string) {
	for i, n := range r.nodes {
		s := NATState{Subnets: map[uint32][]PortBlock{}, Members: map[PortBlock]netip.Addr{}}
		for vni, address := range gateways {
			require.NoError(r.t, n.Externals.Set(prefix(address+"/32"), External{Kind: ExternalNAT}))
			for j, owner := range r.nodes {
				b := block(address, 1024+512*j)
				s.Members[b] = owner.Address
				if i == j {
					s.Members[b], s.Subnets[vni] = netip.Addr{}, []PortBlock{b}
				}
			}
		}
		_, err := n.NAT.Sync(s)
		require.NoError(r.t, err)
	}
}

func TestRealNATGateways(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		r.nat(map[uint32]string{1001: "198.51.100.20", 2001: "198.51.100.21"})
		r.floating(r.b1, "198.51.100.7")
		r.net.Outside.ServeBulk(9090)
		for _, by := range r.nodes { // answers come in by either node
			r.outside(by, testnet.OutsideAddress, 1001, 1002, 2001)
			r.answers(r.a1.Namespace, testnet.OutsideAddress+":8080", "outside", "198.51.100.20")
			r.answers(r.a2.Namespace, testnet.OutsideAddress+":8080", "outside", "198.51.100.20")
			r.answers(r.b2.Namespace, testnet.OutsideAddress+":8080", "outside", "198.51.100.21")
			require.NoError(t, r.a1.Bulk(testnet.OutsideAddress+":9090", 8<<20))
			require.NoError(t, r.a2.Bulk(testnet.OutsideAddress+":9090", 8<<20))
		}
		// Inside, from either node, to a FloatingIP, which leaves by its own address.
		r.answers(r.a1.Namespace, "198.51.100.7:8080", "b1", "198.51.100.20")
		r.answers(r.a2.Namespace, "198.51.100.7:8080", "b1", "198.51.100.20")
		r.answers(r.b1.Namespace, testnet.OutsideAddress+":8080", "outside", "198.51.100.7")

		r.silence(r.a3.Namespace, testnet.OutsideAddress+":8080") // a Subnet without a gateway
		require.Positive(t, r.dropped(r.a3, bpfDropReasonDROP_NO_EXTERNAL))
		r.silence(r.net.Outside, "198.51.100.20:8080")
		for _, host := range []string{"192.0.2.1:8080", "192.0.2.2:8080", outsideUplink + ":8080"} {
			r.silence(r.a1.Namespace, host)
		}
	})
}
