package datapath

import (
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

const (
	realPool = "198.51.100.0/24"
	// outsideUplink is the outside's address on the nodes' underlay.
	outsideUplink = "192.0.2.254"
)

// outside gives the nodes the pool and Subnets a way out. The outside's way in is by one node, from one of its addresses.
func (r *reality) outside(by *realNode, source string, vnis ...uint32) {
	for _, n := range r.nodes {
		require.NoError(r.t, n.Externals.Set(prefix(realPool), External{}))
		for _, vni := range vnis {
			require.NoError(r.t, n.Routes.Set(RouteKey{vni, prefix("0.0.0.0/0")}, Route{Kind: RouteOutside}))
			require.NoError(r.t, n.Routes.Set(RouteKey{vni, prefix("192.0.2.0/24")}, Route{Kind: RouteReserved}))
		}
	}
	link := r.net.Outside.Link(testnet.UplinkName)
	require.NoError(r.t, r.net.Outside.Links().RouteReplace(&netlink.Route{
		Dst: &net.IPNet{IP: net.IPv4(198, 51, 100, 0), Mask: net.CIDRMask(24, 32)}, LinkIndex: link.Attrs().Index, Gw: by.Address.AsSlice(), Src: addr(source).AsSlice(),
	}))
}

func (r *reality) floating(p *realPod, external string) {
	for _, n := range r.nodes {
		e := External{Kind: ExternalFloating, Target: EndpointKey{p.nic.VNI, p.nic.Address}, VPCID: p.nic.VPCID, Node: p.Node.Address}
		if n.Node == p.Node {
			e.Node = netip.Addr{}
		}
		require.NoError(r.t, n.Externals.Set(prefix(external+"/32"), e))
		require.NoError(r.t, n.Floatings.Set(FloatingKey{p.nic.VPCID, p.nic.Address}, Floating{addr(external)}))
	}
}

func TestRealFloatingIPs(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		r.floating(r.a1, "198.51.100.5")
		r.floating(r.a2, "198.51.100.6")
		r.floating(r.b1, "198.51.100.7")
		for _, by := range r.nodes {
			// From outside, and from the nodes' own network.
			for _, source := range []string{testnet.OutsideAddress, outsideUplink} {
				r.outside(by, source, 1001, 2001)
				r.answers(r.net.Outside, "198.51.100.5:8080", "a1", source)
				r.answers(r.net.Outside, "198.51.100.6:8080", "a2", source)
				r.answers(r.net.Outside, "198.51.100.7:8080", "b1", source)
			}
			require.NoError(t, r.net.Outside.Bulk("198.51.100.5:9090", 8<<20))
			r.silence(r.net.Outside, "198.51.100.99:8080") // it ends at the node
		}
		r.answers(r.a1.Namespace, testnet.OutsideAddress+":8080", "outside", "198.51.100.5")
		r.answers(r.a2.Namespace, testnet.OutsideAddress+":8080", "outside", "198.51.100.6")
		r.net.Outside.ServeBulk(9090)
		require.NoError(t, r.a2.Bulk(testnet.OutsideAddress+":9090", 8<<20))
		// From inside, across VPCs and nodes, and to itself.
		r.answers(r.a1.Namespace, "198.51.100.7:8080", "b1", "198.51.100.5")
		r.answers(r.b1.Namespace, "198.51.100.6:8080", "a2", "198.51.100.7")
		r.answers(r.a1.Namespace, "198.51.100.5:8080", "a1", "198.51.100.5")

		r.silence(r.b2.Namespace, testnet.OutsideAddress+":8080")
		require.Positive(t, r.dropped(r.b2, bpfDropReasonDROP_NO_EXTERNAL))
		for _, host := range []string{"192.0.2.1:8080", "192.0.2.2:8080", outsideUplink + ":8080"} {
			r.silence(r.a1.Namespace, host)
		}
		require.Positive(t, r.dropped(r.a1, bpfDropReasonDROP_RESERVED_RANGE))
		// The nodes' own traffic by the uplink is as before.
		r.answers(r.net.Outside, "192.0.2.1:8080", "node-1", outsideUplink)
		r.answers(r.web1.Namespace, "198.18.0.12:8080", "web2", "198.18.0.11")
	})
}

// https://github.com/cilium/cilium/issues/29583
func TestAnOutsideWithALargerMTULearnsTheCloudsByTheExternalAddress(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		r.floating(r.a2, "198.51.100.6")
		r.outside(r.nodes[0], testnet.OutsideAddress, 1001)
		conn, err := r.net.Outside.Dial("udp", "198.51.100.6:8080", testnet.Timeout)
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write(make([]byte, 1472)) // 1,500 bytes
		require.NoError(t, err)
		var learned int
		require.Eventually(t, func() bool {
			routes, err := r.net.Outside.Links().RouteGet(addr("198.51.100.6").AsSlice())
			require.NoError(t, err)
			learned = routes[0].MTU
			return learned != 0
		}, testnet.Timeout, testnet.ShortTimeout/100)
		require.Equal(t, 1450, learned)
	})
}

// The uplink is not the datapath's own: when it goes, the link stays, and so do filters of others.
func TestNothingIsLeftAtTheUplink(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		n := r.nodes[0]
		uplink := n.Link(testnet.UplinkName)
		find := func() (at int) {
			require.NoError(t, n.Do(func() (err error) {
				at, err = FindUplink(r.config[0].PinPath)
				return err
			}))
			return at
		}
		filters := func() []netlink.Filter {
			list, err := n.Links().FilterList(uplink, netlink.HANDLE_MIN_INGRESS)
			if !r.clsact {
				return nil
			}
			require.NoError(t, err)
			return list
		}
		require.Equal(t, uplink.Attrs().Index, find())
		if r.clsact {
			other := &netlink.BpfFilter{
				FilterAttrs: netlink.FilterAttrs{LinkIndex: uplink.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: 3},
				Fd:          n.program(bpfProgUplinkIngress).FD(), Name: "others", DirectAction: true,
			}
			require.NoError(t, n.Links().FilterAdd(other))
			require.Len(t, filters(), 2)
		}
		require.NoError(t, n.Do(func() error { return Remove(r.config[0].PinPath) }))
		require.NoDirExists(t, filepath.Join(r.config[0].PinPath, "links"))
		if r.clsact {
			require.Len(t, filters(), 1, "another's filter stays")
		}
		require.Zero(t, find())
	})
}
