package datapath

import (
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// A node that was lost and comes back still has programs that send as what runs elsewhere by now: its peers refuse it.
func TestOnlyTheMemberThatHasAnAddressSendsAsIt(t *testing.T) {
	c := newTenants(t)
	for p, to := range map[*pod]string{
		c.a1: "10.0.1.12:80", c.b1: "10.0.1.12:80", c.web1: "198.18.0.12:80",
		c.a3: "10.0.1.12:80", // from another Subnet
	} {
		send := func() outcome { return p.sends(p.tcp(4000, to, layers.TCP{SYN: true}).frame()).then() }
		require.Zero(t, send().drop)
		key := EndpointKey{p.nic.VNI, p.nic.Address}
		moved := Endpoint{VPCID: p.nic.VPCID, MAC: p.nic.MAC, Node: addr("192.0.2.3")}
		require.NoError(t, c.nodes[1].Endpoints.Set(key, moved))
		send().isDropped(bpfDropReasonDROP_STALE_SOURCE)
		require.NoError(t, c.nodes[1].Endpoints.Delete(key))
		send().isDropped(bpfDropReasonDROP_STALE_SOURCE)
	}
}

func TestAHostSendsAsItselfAndForTheOutsideButNotAsAnotherHost(t *testing.T) {
	c := newTenants(t)
	n1, n2 := c.nodes[0], c.nodes[1]
	n1.hostSends(n1.hostUDP(4000, "198.18.0.12:80").frame()).then().reaches(c.web2)
	foreign := n1.hostUDP(4000, "198.18.0.12:80")
	foreign.source = addrPortOf("203.0.113.9:4000")
	n1.hostSends(foreign.frame()).then().reaches(c.web2)
	foreign.source = addrPortOf(n2.address.String() + ":4000")
	n1.hostSends(foreign.frame()).then().isDropped(bpfDropReasonDROP_STALE_SOURCE)
}

func TestAMemberWithAForwardingInterfaceMaySendAsOthersOfTheVPCOnly(t *testing.T) {
	c := newTenants(t)
	nic := c.a1.nic
	nic.NoSourceDestCheck = true
	require.NoError(t, c.nodes[0].NICs.Set(uint32(c.a1.ifindex), nic))
	forwarded := c.a1.udp(4000, "10.0.1.12:80")
	forwarded.source = addrPortOf("172.16.0.9:4000")
	c.a1.sends(forwarded.frame()).then().isDropped(bpfDropReasonDROP_STALE_SOURCE)
	require.NoError(t, c.nodes[1].Forwarders.Set(ForwarderKey{Member: c.nodes[0].address, VPCID: 8}, Forwarder{}))
	c.a1.sends(forwarded.frame()).then().isDropped(bpfDropReasonDROP_STALE_SOURCE)
	require.NoError(t, c.nodes[1].Forwarders.Set(ForwarderKey{Member: c.nodes[0].address, VPCID: 7}, Forwarder{}))
	c.a1.sends(forwarded.frame()).then().reaches(c.a2)
}
