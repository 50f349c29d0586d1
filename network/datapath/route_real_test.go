package datapath

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// firewall makes a namespace in a Subnet of its own, 10.0.3.0/24, that may send on what others sent.
func (r *reality) firewall(n *realNode, name, address string) *realPod {
	p := r.pod(n, name, 7, 1003, address)
	p.nic.NoSourceDestCheck = true
	require.NoError(r.t, n.NICs.Set(uint32(p.ifindex()), p.nic))
	require.NoError(r.t, n.Hops.Set(HopKey{1003, p.nic.MAC}, Hop{uint32(p.ifindex())}))
	for _, at := range r.nodes {
		if at != n {
			require.NoError(r.t, at.Forwarders.Set(ForwarderKey{n.Address, 7}, Forwarder{}))
		}
		require.NoError(r.t, at.Routes.Set(RouteKey{1003, prefix("10.0.1.0/24")}, Route{VNI: 1001}))
		require.NoError(r.t, at.Routes.Set(RouteKey{1003, prefix("10.0.2.0/24")}, Route{VNI: 1002}))
		require.NoError(r.t, at.Routes.Set(RouteKey{1001, prefix("10.0.3.0/24")}, Route{VNI: 1003}))
		require.NoError(r.t, at.Routes.Set(RouteKey{1002, prefix("10.0.3.0/24")}, Route{VNI: 1003}))
	}
	p.Sysctl("net/ipv4/conf/all/send_redirects", "0")
	p.Sysctl("net/ipv4/conf/eth0/send_redirects", "0")
	p.AddAddress("lo", testnet.OutsideAddress+"/32") // what is outside of the VPC is behind it
	p.Serve(8081)
	require.NoError(r.t, n.Do(func() error { return n.AttachPod(p.ifindex()) }))
	return p
}

func (r *reality) route(vni uint32, destination string, route Route) {
	for _, n := range r.nodes {
		require.NoError(r.t, n.Routes.Set(RouteKey{vni, prefix(destination)}, route))
	}
}

func TestRealRoutesLeadThroughAFirewall(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		for place, firewall := range map[string]*realPod{
			"on the first node":  r.firewall(r.nodes[0], "fw1", "10.0.3.11"),
			"on the second node": r.firewall(r.nodes[1], "fw2", "10.0.3.12"),
		} {
			t.Log(place)
			through := Route{Kind: RouteHop, Hop: EndpointKey{1003, firewall.Address}}
			there, back, out := through, through, through
			there.VNI, back.VNI = 1002, 1001
			r.route(1001, "10.0.2.0/24", there)
			r.route(1002, "10.0.1.0/24", back)
			r.route(1001, "0.0.0.0/0", out)

			firewall.Sysctl("net/ipv4/ip_forward", "0")
			r.silence(r.a1.Namespace, "10.0.2.11:8080")
			r.silence(r.a1.Namespace, "10.0.2.12:8080")
			firewall.Sysctl("net/ipv4/ip_forward", "1")
			r.answers(r.a1.Namespace, "10.0.2.11:8080", "a3", "10.0.1.11")
			r.answers(r.a1.Namespace, "10.0.2.12:8080", "a4", "10.0.1.11")
			r.answers(r.a2.Namespace, "10.0.2.11:8080", "a3", "10.0.1.12")
			r.answers(r.a4.Namespace, "10.0.1.11:8080", "a1", "10.0.2.12")
			require.NoError(t, r.a1.Bulk("10.0.2.12:9090", 8<<20))
			require.NoError(t, r.a3.Bulk("10.0.1.12:9090", 8<<20))

			// Beyond the VPC is what the firewall says, not what the nodes know.
			r.answers(r.a1.Namespace, testnet.OutsideAddress+":8081", firewall.Name(), "10.0.1.11")
			r.answers(r.a2.Namespace, testnet.OutsideAddress+":8081", firewall.Name(), "10.0.1.12")
			r.silence(r.a3.Namespace, testnet.OutsideAddress+":8081") // its Subnet has no such route
			r.silence(r.b1.Namespace, testnet.OutsideAddress+":8081")
			r.answers(r.b1.Namespace, "10.0.1.12:8080", "b2", "10.0.1.11")
			r.answers(r.web1.Namespace, testnet.OutsideAddress+":8080", "outside", "198.18.0.11")
		}
		r.route(1001, "10.0.2.12/32", Route{Kind: RouteBlackhole, VNI: 1002})
		r.silence(r.a1.Namespace, "10.0.2.12:8080")
		require.Positive(t, r.dropped(r.a1, bpfDropReasonDROP_BLACKHOLE))
		r.answers(r.a1.Namespace, "10.0.2.11:8080", "a3", "10.0.1.11")

		r.route(1001, "10.0.2.0/24", Route{Kind: RouteHop, VNI: 1002})
		r.silence(r.a1.Namespace, "10.0.2.11:8080")
		require.Positive(t, r.dropped(r.a1, bpfDropReasonDROP_NO_NEXT_HOP))
		r.answers(r.a1.Namespace, "10.0.1.12:8080", "a2", "10.0.1.11")
	})
}
