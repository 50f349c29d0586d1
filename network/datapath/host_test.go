package datapath

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

func TestOrdinaryPodsReachEachOther(t *testing.T) {
	c := newTenants(t)
	sent := c.web1.sends(c.web1.udp(4000, "198.18.0.12:80").frame())
	require.EqualValues(t, 1, sent.trace.Vni)
	require.Equal(t, 64, sent.then().reaches(c.web2).is("198.18.0.11:4000", "198.18.0.12:80").ttl())
	neighbour := c.nodes[0].pod(1, 1, "198.18.0.13")
	c.web1.sends(c.web1.udp(4000, "198.18.0.13:80").frame()).reaches(neighbour)
	c.web1.sends(c.web1.udp(4000, "198.18.0.99:80").frame()).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
}

func TestOrdinaryPodsReachTheOutsideAndEveryHost(t *testing.T) {
	c := newTenants(t)
	c.web1.sends(c.web1.udp(4000, "203.0.113.10:53").frame()).reachesHost(c.nodes[0]).is("198.18.0.11:4000", "203.0.113.10:53")
	c.web1.sends(c.web1.udp(4000, "192.0.2.1:10250").frame()).reachesHost(c.nodes[0])
	c.web1.sends(c.web1.udp(4000, "192.0.2.2:10250").frame()).then().reachesHost(c.nodes[1]).is("198.18.0.11:4000", "192.0.2.2:10250")
	c.web1.sends(c.web1.icmp("192.0.2.2", layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0))).then().reachesHost(c.nodes[1])
	fragment := c.web1.udp(4000, "203.0.113.10:53")
	fragment.ip = func(ip *layers.IPv4) { ip.FragOffset = 100 }
	c.web1.sends(fragment.frame()).reachesHost(c.nodes[0])
}

func TestAPodsOwnVXLANIsDropped(t *testing.T) {
	c := newTenants(t)
	inner := c.web1.udp(1, "198.18.0.12:80").frame()
	for _, destination := range []string{"192.0.2.1:4789", "192.0.2.2:4789", "203.0.113.1:4789"} {
		whole := c.web1.udp(4000, destination)
		whole.size = 80
		c.web1.sends(whole.frame()).isDropped(bpfDropReasonDROP_FORGED_VXLAN)
		// A host would put it together again before it sends it on.
		first, _ := c.web1.pieces(whole)
		c.web1.sends(first).isDropped(bpfDropReasonDROP_FORGED_VXLAN)
	}
	// Only members speak VXLAN, and only of what is here.
	n := c.nodes[0]
	n.receives(addr("192.0.2.9"), 1, inner).isDropped(bpfDropReasonDROP_UNKNOWN_MEMBER)
	n.run(bpfProgVxlanIngress, inner, skBuff{ifindex: vxlanIfindex}, bpfTrace{}).isDropped(bpfDropReasonDROP_NO_TUNNEL)
	n.receives(c.nodes[1].address, 4711, inner).isDropped(bpfDropReasonDROP_UNKNOWN_VNI)
	n.receives(c.nodes[1].address, 1, inner).isDropped(bpfDropReasonDROP_NOT_LOCAL)
	n.receives(c.nodes[1].address, 1, c.web1.udp(1, "203.0.113.1:80").frame()).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
	n.receives(c.nodes[1].address, 1001, c.web1.udp(1, "198.18.0.11:80").frame()).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
	arp := build(ethernet(c.web2.nic.MAC, broadcastMAC, layers.EthernetTypeARP), c.web2.arp(layers.ARPRequest, "198.18.0.12", "198.18.0.11"))
	n.receives(c.nodes[1].address, 1, arp).isDropped(bpfDropReasonDROP_UNKNOWN_ETHERTYPE)
	cut := build(ethernet(c.web2.nic.MAC, c.web1.nic.MAC, layers.EthernetTypeIPv4), ipv4(c.web2.nic.Address, c.web1.nic.Address, layers.IPProtocolTCP))
	n.receives(c.nodes[1].address, 1, cut).isDropped(bpfDropReasonDROP_MALFORMED)
	for _, of := range [][]byte{arp, cut} { // whatever a stranger sends
		n.receives(addr("192.0.2.9"), 1, of).isDropped(bpfDropReasonDROP_UNKNOWN_MEMBER)
	}
}

func TestAHostReachesOrdinaryPodsAndIsAnswered(t *testing.T) {
	c := newTenants(t)
	n1 := c.nodes[0]
	n1.hostSends(n1.hostUDP(4000, "198.18.0.11:80").frame()).reaches(c.web1).is("192.0.2.1:4000", "198.18.0.11:80")
	c.web1.sends(c.web1.udp(80, "192.0.2.1:4000").frame()).reachesHost(n1)
	n1.hostSends(n1.hostUDP(4000, "198.18.0.12:80").frame()).then().reaches(c.web2)
	c.web2.sends(c.web2.udp(80, "192.0.2.1:4000").frame()).then().reachesHost(n1).is("198.18.0.12:80", "192.0.2.1:4000")

	n1.hostSends(n1.hostUDP(4000, "198.18.0.99:80").frame()).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
	n1.hostSends(n1.hostUDP(4000, "203.0.113.1:80").frame()).isDropped(bpfDropReasonDROP_NO_ENDPOINT) // it came from the host
	arp := build(ethernet(n1.config.HostMAC, broadcastMAC, layers.EthernetTypeARP), c.web1.arp(layers.ARPRequest, "192.0.2.1", "198.18.0.11"))
	n1.hostSends(arp).isDropped(bpfDropReasonDROP_UNKNOWN_ETHERTYPE)
	router := build(ethernet(n1.config.HostMAC, MAC{0x33, 0x33}, layers.EthernetTypeIPv6), gopacket.Payload(make([]byte, 40)))
	n1.hostSends(router).isDropped(bpfDropReasonDROP_IPV6)
	cut := build(ethernet(n1.config.HostMAC, c.web1.nic.MAC, layers.EthernetTypeIPv4), ipv4(n1.address, c.web1.nic.Address, layers.IPProtocolUDP))
	n1.hostSends(cut).isDropped(bpfDropReasonDROP_MALFORMED)
	long := n1.hostUDP(4000, "198.18.0.12:80")
	long.size = 1450
	n1.hostSends(long.frame()).isDropped(bpfDropReasonDROP_MTU_EXCEEDED)
}
