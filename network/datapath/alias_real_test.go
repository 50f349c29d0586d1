package datapath

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// infrastructure gives a tenant's interface its infrastructure address.
func (r *reality) infrastructure(p *realPod, address string) {
	p.AddAddress("lo", address+"/32")
	p.nic.Infrastructure = addr(address)
	for _, n := range r.nodes {
		e := Endpoint{VPCID: p.nic.VPCID, Kind: EndpointInfrastructure, MAC: p.nic.MAC, Node: p.Node.Address}
		if n.Node == p.Node {
			e.Node, e.Ifindex = netip.Addr{}, uint32(p.ifindex())
			require.NoError(r.t, n.NICs.Set(e.Ifindex, p.nic))
		}
		require.NoError(r.t, n.Endpoints.Set(EndpointKey{1, addr(address)}, e))
	}
}

// https://github.com/kubeovn/kube-ovn/issues/3024 and
// https://github.com/kubeovn/kube-ovn/issues/7130: probes to two Pods of one address in two VPCs on one node cannot work.
func TestRealInfrastructureAddresses(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		first, second := r.nodes[0].Namespace, r.nodes[1].Namespace
		t.Log("hosts reach two Pods of one address on one node, which see an alias")
		r.answers(first, "198.18.0.51:8080", "a1", alias1)
		r.answers(first, "198.18.0.52:8080", "b1", alias1)
		r.answers(first, "198.18.0.53:8080", "a2", alias1)
		r.answers(second, "198.18.0.51:8080", "a1", alias2)
		r.answers(second, "198.18.0.52:8080", "b1", alias2)
		r.answers(second, "198.18.0.53:8080", "a2", alias2)
		require.NoError(t, first.Bulk("198.18.0.51:9090", 4<<20))
		require.NoError(t, second.Bulk("198.18.0.52:9090", 4<<20))
		t.Log("a host learns that a port is closed")
		for _, from := range []*testnet.Namespace{first, second} {
			for _, network := range []string{"tcp", "udp"} {
				_, err := from.Ask(network, "198.18.0.51:8081", testnet.Timeout)
				require.ErrorIs(t, err, syscall.ECONNREFUSED, "%s from %s", network, from.Name())
			}
		}
		t.Log("ordinary Pods do not reach them, those of the platform do")
		r.silence(r.web1.Namespace, "198.18.0.51:8080")
		r.silence(r.web1.Namespace, "198.18.0.53:8080")
		for _, n := range r.nodes {
			e, ok, err := n.Endpoints.Get(EndpointKey{1, r.web1.Address})
			require.NoError(t, err)
			require.True(t, ok)
			e.Kind = EndpointPlatform
			require.NoError(t, n.Endpoints.Set(EndpointKey{1, r.web1.Address}, e))
		}
		r.answers(r.web1.Namespace, "198.18.0.51:8080", "a1", "169.254.64.11")
		r.answers(r.web1.Namespace, "198.18.0.52:8080", "b1", "169.254.64.11")
		r.answers(r.web1.Namespace, "198.18.0.53:8080", "a2", "169.254.64.11")
		r.silence(r.web2.Namespace, "198.18.0.51:8080")
		t.Log("tenants reach their own, which is their own loopback's, and no other")
		own, err := r.a1.Ask("tcp", "198.18.0.51:8080", testnet.Timeout)
		require.NoError(t, err)
		require.Equal(t, "a1 198.18.0.51", own)
		r.silence(r.a1.Namespace, "198.18.0.52:8080")
		r.silence(r.a1.Namespace, "198.18.0.53:8080")
		r.silence(r.a1.Namespace, alias1+":8080")
		r.silence(r.a1.Namespace, alias2+":8080")
	})
}

func TestForgedAnswersDoNotReachAHost(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		host := r.nodes[0]
		capture, err := host.Capture("h0")
		require.NoError(t, err)
		defer func() { require.NoError(t, capture.Close()) }()
		conn, err := host.Dial("udp", "198.18.0.51:7777", testnet.Timeout) // no one listens there
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte("question"))
		require.NoError(t, err)
		port := netip.MustParseAddrPort(conn.LocalAddr().String()).Port()
		send := func(mark string, from uint16, to netip.AddrPort, tcp bool) {
			ip := ipv4(r.a1.Address, to.Addr(), layers.IPProtocolUDP)
			eth := ethernet(r.a1.nic.MAC, r.a1.nic.GatewayMAC, layers.EthernetTypeIPv4)
			if tcp {
				ip.Protocol = layers.IPProtocolTCP
				l4 := &layers.TCP{SrcPort: layers.TCPPort(from), DstPort: layers.TCPPort(to.Port()), SYN: true}
				require.NoError(t, l4.SetNetworkLayerForChecksum(ip))
				require.NoError(t, r.a1.SendFrame("eth0", build(eth, ip, l4, gopacket.Payload(mark))))
				return
			}
			l4 := &layers.UDP{SrcPort: layers.UDPPort(from), DstPort: layers.UDPPort(to.Port())}
			require.NoError(t, l4.SetNetworkLayerForChecksum(ip))
			require.NoError(t, r.a1.SendFrame("eth0", build(eth, ip, l4, gopacket.Payload(mark))))
		}
		opened := netip.AddrPortFrom(addr(alias1), port)
		send("true answer", 7777, opened, false)
		_, err = capture.Await([]byte("true answer"), testnet.Timeout)
		require.NoError(t, err, "the host receives")
		before := r.dropped(r.a1, bpfDropReasonDROP_NOT_OPENED)
		send("forged", 7778, opened, false)
		send("forged", 7777, netip.AddrPortFrom(opened.Addr(), port+1), false)
		send("forged", 7777, netip.AddrPortFrom(addr(alias2), port), false)
		send("forged", 7777, netip.AddrPortFrom(host.Address, port), false) // no route: the host itself
		send("forged", 7777, opened, true)
		send("forged", 7777, netip.MustParseAddrPort("198.18.0.51:7777"), false)
		require.Eventually(t, func() bool { return r.dropped(r.a1, bpfDropReasonDROP_NOT_OPENED) == before+5 }, testnet.Timeout, time.Millisecond)
		_, err = capture.Await([]byte("forged"), testnet.ShortTimeout)
		require.Error(t, err, "a forged answer arrived")
		send("true again", 7777, opened, false)
		_, err = capture.Await([]byte("true again"), testnet.Timeout)
		require.NoError(t, err)
	})
}
