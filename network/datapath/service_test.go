package datapath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// service sets a Service on every node.
func (c *cloud) service(protocol Protocol, at string, affinity time.Duration, backends ...string) ServiceKey {
	c.t.Helper()
	key := ServiceKey{VPCID: 1, Address: addrPortOf(at).Addr(), Port: addrPortOf(at).Port(), Protocol: protocol}
	service := Service{Affinity: affinity}
	for _, b := range backends {
		service.Backends = append(service.Backends, Backend{addrPortOf(b).Addr(), addrPortOf(b).Port()})
	}
	for _, n := range c.nodes {
		require.NoError(c.t, n.Services.Set(key, service))
	}
	return key
}

// ager makes all flows of a node older, as if time had passed.
func (n *node) ager(by time.Duration) {
	require.NoError(n.cloud.t, n.Conntrack.each(func(key bpfConntrackKey, entry bpfConntrack) error {
		entry.LastSeen -= uint32(by / time.Second)
		return n.Conntrack.m.Put(bytesOf(&key), bytesOf(&entry))
	}))
}

// flows is how many entries of each direction a node has.
func (n *node) flows() (forward, reverse int) {
	require.NoError(n.cloud.t, n.Conntrack.each(func(key bpfConntrackKey, _ bpfConntrack) error {
		if key.Direction == bpfConntrackDirectionCONNTRACK_FORWARD {
			forward++
		} else {
			reverse++
		}
		return nil
	}))
	return forward, reverse
}

// dropFlows deletes a node's entries of one direction, as the LRU may.
func (n *node) dropFlows(direction bpfConntrackDirection) {
	require.NoError(n.cloud.t, n.Conntrack.each(func(key bpfConntrackKey, _ bpfConntrack) error {
		if key.Direction == direction {
			return n.Conntrack.delete(key)
		}
		return nil
	}))
}

func TestAServiceIsAnsweredFromItsOwnAddress(t *testing.T) {
	c := newTenants(t)
	near := c.nodes[0].pod(1, 1, "198.18.0.13")
	for _, protocol := range []Protocol{TCP, UDP} {
		packet := func(p *pod, port uint16, to string, flags layers.TCP) []byte {
			if protocol == UDP {
				return p.udp(port, to).frame()
			}
			return p.tcp(port, to, flags).frame()
		}
		// The backend is on another node: the client's node translates both ways.
		c.service(protocol, "198.19.0.10:80", 0, "198.18.0.12:8080")
		c.web1.sends(packet(c.web1, 4000, "198.19.0.10:80", layers.TCP{SYN: true})).then().reaches(c.web2).
			is("198.18.0.11:4000", "198.18.0.12:8080")
		c.web2.sends(packet(c.web2, 8080, "198.18.0.11:4000", layers.TCP{SYN: true, ACK: true})).then().reaches(c.web1).
			is("198.19.0.10:80", "198.18.0.11:4000")
		// The backend is on the same node.
		c.service(protocol, "198.19.0.11:80", 0, "198.18.0.13:80")
		c.web1.sends(packet(c.web1, 4001, "198.19.0.11:80", layers.TCP{SYN: true})).reaches(near).is("198.18.0.11:4001", "198.18.0.13:80")
		near.sends(packet(near, 80, "198.18.0.11:4001", layers.TCP{SYN: true, ACK: true})).reaches(c.web1).
			is("198.19.0.11:80", "198.18.0.11:4001")
		// What the client says to the backend itself is left alone.
		c.web1.sends(packet(c.web1, 4002, "198.18.0.13:80", layers.TCP{SYN: true})).reaches(near).is("198.18.0.11:4002", "198.18.0.13:80")
		near.sends(packet(near, 80, "198.18.0.11:4002", layers.TCP{SYN: true, ACK: true})).reaches(c.web1).is("198.18.0.13:80", "198.18.0.11:4002")
	}
	flows, err := c.nodes[0].Conntrack.List()
	require.NoError(t, err)
	require.Len(t, flows, 4)
	for _, flow := range flows {
		require.True(t, flow.Replied)
		require.False(t, flow.Closing)
		require.Equal(t, addr("198.18.0.11"), flow.Client.Addr())
		require.Equal(t, flow.Client.Port(), flow.NATPort)
	}
}

func TestAUDPChecksumOfZeroStaysZero(t *testing.T) {
	c := newTenants(t)
	c.service(UDP, "198.19.0.10:53", 0, "198.18.0.12:5353")
	frame := c.web1.udp(4000, "198.19.0.10:53").frame()
	frame[14+20+6], frame[14+20+7] = 0, 0
	_, packet := c.web1.sends(frame).then().reaches(c.web2).parse()
	require.Zero(t, packet.Layer(layers.LayerTypeUDP).(*layers.UDP).Checksum)
}

func TestAServiceOfHostsAndOfTheOutside(t *testing.T) {
	c := newTenants(t)
	n1, n2 := c.nodes[0], c.nodes[1]
	// The API server: on the machine, at the underlay.
	c.service(TCP, "198.19.0.1:443", 0, "192.0.2.2:6443")
	c.web1.sends(c.web1.tcp(4000, "198.19.0.1:443", layers.TCP{SYN: true}).frame()).then().reachesHost(n2).is("198.18.0.11:4000", "192.0.2.2:6443")
	answer := n2.hostUDP(6443, "198.18.0.11:4000")
	answer.tcp = &layers.TCP{SYN: true, ACK: true}
	n2.hostSends(answer.frame()).then().reaches(c.web1).is("198.19.0.1:443", "198.18.0.11:4000")
	// On the client's own node.
	c.web2.sends(c.web2.tcp(4000, "198.19.0.1:443", layers.TCP{SYN: true}).frame()).reachesHost(n2).is("198.18.0.12:4000", "192.0.2.2:6443")
	answer.destination = addrPortOf("198.18.0.12:4000")
	n2.hostSends(answer.frame()).reaches(c.web2).is("198.19.0.1:443", "198.18.0.12:4000")
	// Outside: the host forwards, and gives back what comes.
	c.service(TCP, "198.19.0.2:80", 0, "203.0.113.9:80")
	c.web1.sends(c.web1.tcp(4001, "198.19.0.2:80", layers.TCP{SYN: true}).frame()).reachesHost(n1).is("198.18.0.11:4001", "203.0.113.9:80")
	answer = n1.hostUDP(80, "198.18.0.11:4001")
	answer.source, answer.tcp = addrPortOf("203.0.113.9:80"), &layers.TCP{SYN: true, ACK: true}
	n1.hostSends(answer.frame()).reaches(c.web1).is("198.19.0.2:80", "198.18.0.11:4001")
}

func TestAHostReachesServices(t *testing.T) {
	c := newTenants(t)
	n1 := c.nodes[0]
	c.service(UDP, "198.19.0.10:53", 0, "198.18.0.12:5353")
	n1.hostSends(n1.hostUDP(4000, "198.19.0.10:53").frame()).then().reaches(c.web2).is("192.0.2.1:4000", "198.18.0.12:5353")
	c.web2.sends(c.web2.udp(5353, "192.0.2.1:4000").frame()).then().reachesHost(n1).is("198.19.0.10:53", "192.0.2.1:4000")
	c.service(UDP, "198.19.0.11:53", 0, "198.18.0.11:5353")
	n1.hostSends(n1.hostUDP(4001, "198.19.0.11:53").frame()).reaches(c.web1).is("192.0.2.1:4001", "198.18.0.11:5353")
	c.web1.sends(c.web1.udp(5353, "192.0.2.1:4001").frame()).reachesHost(n1).is("198.19.0.11:53", "192.0.2.1:4001")
	// Itself: not from its own address, which its stack would refuse.
	c.service(UDP, "198.19.0.12:53", 0, "192.0.2.1:53")
	n1.hostSends(n1.hostUDP(4002, "198.19.0.12:53").frame()).reachesHost(n1).is("169.254.0.1:4002", "192.0.2.1:53")
	n1.hostSends(n1.hostUDP(53, "169.254.0.1:4002").frame()).reachesHost(n1).is("198.19.0.12:53", "192.0.2.1:4002")
	// Another host, or the outside, would answer by the underlay, past the translation.
	c.service(UDP, "198.19.0.13:53", 0, "203.0.113.9:53")
	n1.hostSends(n1.hostUDP(4000, "198.19.0.13:53").frame()).isDropped(bpfDropReasonDROP_SERVICE_HOST_TO_HOST)
	n2 := c.nodes[1]
	n2.hostSends(n2.hostUDP(4003, "198.19.0.12:53").frame()).isDropped(bpfDropReasonDROP_SERVICE_HOST_TO_HOST)
}

func TestAPodReachesItselfThroughAService(t *testing.T) {
	c := newTenants(t)
	c.service(TCP, "198.19.0.10:80", 0, "198.18.0.11:8080")
	syn := c.web1.tcp(4000, "198.19.0.10:80", layers.TCP{SYN: true}).frame()
	c.web1.sends(syn).reaches(c.web1).is("169.254.0.1:4000", "198.18.0.11:8080")
	answer := c.web1.tcp(8080, "169.254.0.1:4000", layers.TCP{SYN: true, ACK: true}).frame()
	c.web1.sends(answer).reaches(c.web1).is("198.19.0.10:80", "198.18.0.11:4000")
	// Either entry makes the other anew.
	n := c.nodes[0]
	for _, evicted := range []bpfConntrackDirection{bpfConntrackDirectionCONNTRACK_FORWARD, bpfConntrackDirectionCONNTRACK_REVERSE} {
		n.dropFlows(evicted)
		n.ager(time.Second)
		if evicted == bpfConntrackDirectionCONNTRACK_FORWARD {
			c.web1.sends(answer).reaches(c.web1).is("198.19.0.10:80", "198.18.0.11:4000")
		} else {
			c.web1.sends(syn).reaches(c.web1).is("169.254.0.1:4000", "198.18.0.11:8080")
		}
		forward, reverse := n.flows()
		require.Equal(t, []int{1, 1}, []int{forward, reverse})
	}
	// Nothing else goes to the alias.
	c.web1.sends(c.web1.tcp(8080, "169.254.0.1:4001", layers.TCP{ACK: true}).frame()).isDropped(bpfDropReasonDROP_NO_CONNTRACK)
	c.web1.sends(c.web1.icmp("169.254.0.1", layers.CreateICMPv4TypeCode(8, 0))).isDropped(bpfDropReasonDROP_NO_CONNTRACK)
}

// https://github.com/cilium/cilium/issues/34833 and
// https://github.com/cilium/cilium/issues/29305: the LRU evicted one half of a pair.
func TestEitherHalfOfAFlowHealsTheOther(t *testing.T) {
	c := newTenants(t)
	n := c.nodes[0]
	c.service(TCP, "198.19.0.10:80", 0, "198.18.0.12:8080")
	request := c.web1.tcp(4000, "198.19.0.10:80", layers.TCP{ACK: true}).frame()
	reply := c.web2.tcp(8080, "198.18.0.11:4000", layers.TCP{ACK: true}).frame()
	c.web1.sends(request).then().reaches(c.web2)
	c.web2.sends(reply).then().reaches(c.web1)
	c.service(TCP, "198.19.0.10:80", 0) // no new flow could open
	for range 2 {
		n.dropFlows(bpfConntrackDirectionCONNTRACK_REVERSE)
		n.ager(time.Second)
		c.web1.sends(request).then().reaches(c.web2).is("198.18.0.11:4000", "198.18.0.12:8080")
		c.web2.sends(reply).then().reaches(c.web1).is("198.19.0.10:80", "198.18.0.11:4000")
		n.dropFlows(bpfConntrackDirectionCONNTRACK_FORWARD)
		n.ager(time.Second)
		c.web2.sends(reply).then().reaches(c.web1).is("198.19.0.10:80", "198.18.0.11:4000")
		c.web1.sends(request).then().reaches(c.web2).is("198.18.0.11:4000", "198.18.0.12:8080")
	}
}

func TestAnEvictedFlowFindsTheSameBackendAgain(t *testing.T) {
	c := newTenants(t)
	c.service(TCP, "198.19.0.10:80", 0, "198.18.0.12:1", "198.18.0.12:2", "198.18.0.12:3", "198.18.0.12:4", "198.18.0.12:5")
	used := map[uint16]int{}
	for port := uint16(4000); port < 4100; port++ {
		backend := func() uint16 {
			_, packet := c.web1.sends(c.web1.tcp(port, "198.19.0.10:80", layers.TCP{ACK: true}).frame()).parse()
			return uint16(packet.Layer(layers.LayerTypeTCP).(*layers.TCP).DstPort)
		}
		first := backend()
		require.NoError(t, c.nodes[0].Conntrack.Clear())
		require.Equal(t, first, backend())
		used[first]++
	}
	require.Len(t, used, 5, "flows are spread over all backends: %v", used)
	for _, n := range used {
		require.Greater(t, n, 8, "flows are spread evenly: %v", used)
	}
}

func TestAClientKeepsToItsBackendWithAffinity(t *testing.T) {
	c := newTenants(t)
	backend := func(p *pod, port uint16) uint16 {
		_, packet := p.sends(p.tcp(port, "198.19.0.10:80", layers.TCP{SYN: true}).frame()).parse()
		return uint16(packet.Layer(layers.LayerTypeTCP).(*layers.TCP).DstPort)
	}
	all := []string{"198.18.0.12:1", "198.18.0.12:2", "198.18.0.12:3"}
	c.service(TCP, "198.19.0.10:80", time.Hour, all...)
	first := backend(c.web1, 4000)
	// It stays when others come and go.
	c.service(TCP, "198.19.0.10:80", time.Hour, append(all, "198.18.0.12:4", "198.18.0.12:5")...)
	for port := uint16(4001); port < 4020; port++ {
		require.Equal(t, first, backend(c.web1, port))
	}
	// When it goes itself, another is kept to.
	var rest []string
	for _, b := range all {
		if addrPortOf(b).Port() != first {
			rest = append(rest, b)
		}
	}
	c.service(TCP, "198.19.0.10:80", time.Hour, rest...)
	second := backend(c.web1, 5000)
	require.NotEqual(t, first, second)
	require.Equal(t, second, backend(c.web1, 5001))
}

func TestABackendThatIsGoneIsNotUsedAgain(t *testing.T) {
	c := newTenants(t)
	n := c.nodes[0]
	c.service(TCP, "198.19.0.10:80", 0, "198.18.0.12:80", "198.18.0.13:80")
	c.endpoint(c.nodes[1], EndpointKey{1, addr("198.18.0.13")}, Endpoint{VPCID: 1})
	var port uint16
	for port = 4000; ; port++ { // a client of the one that will go
		_, packet := c.web1.sends(c.web1.tcp(port, "198.19.0.10:80", layers.TCP{SYN: true}).frame()).parse()
		if packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4).DstIP.Equal(addr("198.18.0.13").AsSlice()) {
			break
		}
	}
	require.NoError(t, n.Endpoints.Delete(EndpointKey{1, addr("198.18.0.13")}))
	syn := c.web1.tcp(port, "198.19.0.10:80", layers.TCP{SYN: true}).frame()
	c.web1.sends(syn).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
	c.web1.sends(syn).then().reaches(c.web2).is(netip.AddrPortFrom(c.web1.nic.Address, port).String(), "198.18.0.12:80")
}

func TestFlowsOfUDPToARemovedBackendAreForgotten(t *testing.T) {
	c := newTenants(t)
	n := c.nodes[0]
	flows := func() int { forward, reverse := n.flows(); return forward + reverse }
	c.service(UDP, "198.19.0.10:53", 0, "198.18.0.12:53")
	other := c.service(UDP, "198.19.0.11:53", 0, "198.18.0.12:53")
	c.web1.sends(c.web1.udp(4000, "198.19.0.10:53").frame()).then().reaches(c.web2)
	c.web1.sends(c.web1.udp(4001, "198.19.0.11:53").frame()).then().reaches(c.web2)
	require.Equal(t, 4, flows())
	near := n.pod(1, 1, "198.18.0.13")
	c.service(UDP, "198.19.0.10:53", 0, "198.18.0.13:53")
	require.Equal(t, 2, flows())
	c.web1.sends(c.web1.udp(4000, "198.19.0.10:53").frame()).reaches(near)
	require.NoError(t, n.Services.Delete(other))
	require.Equal(t, 2, flows())
	c.web1.sends(c.web1.udp(4001, "198.19.0.11:53").frame()).isToldTo(c.web1, bpfDropReasonDROP_UNKNOWN_SERVICE)
}

func TestWhatAServiceCannotServeIsDroppedWithAReason(t *testing.T) {
	c := newTenants(t)
	c.service(UDP, "198.19.0.10:53", 0)
	c.web1.sends(c.web1.udp(4000, "198.19.0.10:53").frame()).isToldTo(c.web1, bpfDropReasonDROP_NO_BACKEND)
	c.service(UDP, "198.19.0.10:53", 0, "198.18.0.12:53")
	c.web1.sends(c.web1.udp(4000, "198.19.0.10:54").frame()).isToldTo(c.web1, bpfDropReasonDROP_UNKNOWN_SERVICE)
	c.web1.sends(c.web1.tcp(4000, "198.19.0.10:53", layers.TCP{SYN: true}).frame()).isToldTo(c.web1, bpfDropReasonDROP_UNKNOWN_SERVICE)
	c.web1.sends(c.web1.icmp("198.19.0.10", layers.CreateICMPv4TypeCode(8, 0))).isDropped(bpfDropReasonDROP_SERVICE_PROTOCOL)
	for _, fragment := range []func(*layers.IPv4){
		func(ip *layers.IPv4) { ip.Flags = layers.IPv4MoreFragments },
		func(ip *layers.IPv4) { ip.FragOffset = 4 },
	} {
		// Between Pods fragments pass in any order.
		s := c.web1.udp(4000, "198.18.0.12:53")
		s.ip = fragment
		c.web1.sends(s.frame()).then().reaches(c.web2)
	}
	foreign := build(ethernet(c.web1.nic.MAC, c.web1.nic.GatewayMAC, layers.EthernetTypeIPv4),
		ipv4(c.web1.nic.Address, addr("198.19.0.10"), layers.IPProtocolSCTP), gopacket.Payload(make([]byte, 20)))
	c.web1.sends(foreign).isDropped(bpfDropReasonDROP_SERVICE_PROTOCOL)
}

func TestTwoFlowsThatWouldCollideAtTheirBackendGetDifferentPorts(t *testing.T) {
	c := newTenants(t, func(c *Config) { c.ConntrackEntries = 131072 })
	n := c.nodes[0]
	c.service(UDP, "198.19.0.10:53", 0, "198.18.0.12:53")
	c.service(UDP, "198.19.0.11:53", 0, "198.18.0.12:53")
	first := c.web1.udp(4000, "198.19.0.10:53").frame()
	second := c.web1.udp(4000, "198.19.0.11:53").frame()
	c.web1.sends(first).then().reaches(c.web2).is("198.18.0.11:4000", "198.18.0.12:53")
	_, packet := c.web1.sends(second).then().reaches(c.web2).parse()
	port := uint16(packet.Layer(layers.LayerTypeUDP).(*layers.UDP).SrcPort)
	require.NotEqual(t, uint16(4000), port)
	require.GreaterOrEqual(t, port, uint16(1024))
	reply := c.web2.udp(53, netip.AddrPortFrom(c.web1.nic.Address, port).String()).frame()
	c.web2.sends(c.web2.udp(53, "198.18.0.11:4000").frame()).then().reaches(c.web1).is("198.19.0.10:53", "198.18.0.11:4000")
	c.web2.sends(reply).then().reaches(c.web1).is("198.19.0.11:53", "198.18.0.11:4000")
	n.dropFlows(bpfConntrackDirectionCONNTRACK_REVERSE) // the port is kept by the other half
	n.ager(time.Second)
	c.web1.sends(second).then().reaches(c.web2).is(netip.AddrPortFrom(c.web1.nic.Address, port).String(), "198.18.0.12:53")
	c.web2.sends(reply).then().reaches(c.web1).is("198.19.0.11:53", "198.18.0.11:4000")

	// A flow that is over does not count.
	n.ager(udpTimeout)
	c.web1.sends(second).then().reaches(c.web2).is("198.18.0.11:4000", "198.18.0.12:53")

	// With every port taken there is none to give.
	require.NoError(t, n.Conntrack.Clear())
	c.web1.sends(first).then().reaches(c.web2)
	var key bpfConntrackKey
	var entry bpfConntrack
	require.NoError(t, n.Conntrack.each(func(k bpfConntrackKey, e bpfConntrack) error {
		if k.Direction == bpfConntrackDirectionCONNTRACK_REVERSE {
			key, entry = k, e
		}
		return nil
	}))
	for port := 1024; port < 65536; port++ {
		key.DestinationPort = networkPort(uint16(port))
		require.NoError(t, n.Conntrack.m.Put(bytesOf(&key), bytesOf(&entry)))
	}
	c.web1.sends(second).isDropped(bpfDropReasonDROP_CONNTRACK_COLLISION)
}

// udpTimeout is more than a flow of UDP lives without a packet.
const udpTimeout = 181 * time.Second

func TestAClosedConnectionsPortsCanBeUsedAnew(t *testing.T) {
	c := newTenants(t)
	n := c.nodes[0]
	key := c.service(TCP, "198.19.0.10:80", 0, "198.18.0.12:8080")
	client := func(flags layers.TCP) []byte { return c.web1.tcp(4000, "198.19.0.10:80", flags).frame() }
	server := func(flags layers.TCP) []byte { return c.web2.tcp(8080, "198.18.0.11:4000", flags).frame() }
	closing := func() bool {
		flows, err := n.Conntrack.List()
		require.NoError(t, err)
		require.Len(t, flows, 1)
		return flows[0].Closing
	}
	c.web1.sends(client(layers.TCP{SYN: true})).then().reaches(c.web2)
	c.web2.sends(server(layers.TCP{SYN: true, ACK: true})).then().reaches(c.web1)
	c.web1.sends(client(layers.TCP{FIN: true, ACK: true})).then().reaches(c.web2)
	require.False(t, closing(), "one side may go on")
	c.web2.sends(server(layers.TCP{FIN: true, ACK: true})).then().reaches(c.web1)
	require.True(t, closing())
	c.web1.sends(client(layers.TCP{ACK: true})).then().reaches(c.web2)

	// The same client port again: a new flow, to a backend that exists now.
	near := n.pod(1, 1, "198.18.0.13")
	c.service(TCP, "198.19.0.10:80", 0, "198.18.0.13:8080")
	c.web1.sends(client(layers.TCP{SYN: true})).reaches(near)
	require.False(t, closing())
	near.sends(near.tcp(8080, "198.18.0.11:4000", layers.TCP{RST: true}).frame()).reaches(c.web1).is("198.19.0.10:80", "198.18.0.11:4000")
	require.True(t, closing())

	// A closed flow is over soon: what the backend's port then says is not the Service's.
	n.ager(11 * time.Second)
	near.sends(near.tcp(8080, "198.18.0.11:4000", layers.TCP{SYN: true, ACK: true}).frame()).reaches(c.web1).is("198.18.0.13:8080", "198.18.0.11:4000")
	require.NoError(t, n.Services.Delete(key))
	c.web1.sends(client(layers.TCP{SYN: true})).isToldTo(c.web1, bpfDropReasonDROP_UNKNOWN_SERVICE)
}

func TestAFlowLivesAsLongAsItsKeepAlive(t *testing.T) {
	c := newTenants(t)
	n := c.nodes[0]
	c.service(TCP, "198.19.0.10:80", 0, "198.18.0.12:8080")
	data := c.web1.tcp(4000, "198.19.0.10:80", layers.TCP{ACK: true}).frame()
	c.web1.sends(data).then().reaches(c.web2)
	c.web2.sends(c.web2.tcp(8080, "198.18.0.11:4000", layers.TCP{ACK: true}).frame()).then().reaches(c.web1)
	c.service(TCP, "198.19.0.10:80", 0) // no new flow could open
	n.ager(2*time.Hour + time.Minute)
	c.web1.sends(data).then().reaches(c.web2)
	n.ager(3 * time.Hour)
	c.web1.sends(data).isToldTo(c.web1, bpfDropReasonDROP_NO_BACKEND)
}
