package datapath

import (
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// build serializes layers with lengths and checksums filled in.
func build(stack ...gopacket.SerializableLayer) []byte {
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, stack...); err != nil {
		panic(err)
	}
	return buffer.Bytes()
}

func ethernet(source, destination MAC, kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: source.HardwareAddr(), DstMAC: destination.HardwareAddr(), EthernetType: kind}
}

func ipv4(source, destination netip.Addr, protocol layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Id: 7, Protocol: protocol, SrcIP: source.AsSlice(), DstIP: destination.AsSlice()}
}

// segment is a TCP or UDP packet with a payload.
type segment struct {
	sourceMAC, destinationMAC MAC
	source, destination       netip.AddrPort
	tcp                       *layers.TCP
	size                      int
	ip                        func(*layers.IPv4)
}

func (s segment) frame() []byte {
	protocol := layers.IPProtocolUDP
	if s.tcp != nil {
		protocol = layers.IPProtocolTCP
	}
	ip := ipv4(s.source.Addr(), s.destination.Addr(), protocol)
	if s.ip != nil {
		s.ip(ip)
	}
	payload := make([]byte, s.size)
	for i := range payload {
		payload[i] = byte(i)
	}
	eth := ethernet(s.sourceMAC, s.destinationMAC, layers.EthernetTypeIPv4)
	if s.tcp == nil {
		udp := &layers.UDP{SrcPort: layers.UDPPort(s.source.Port()), DstPort: layers.UDPPort(s.destination.Port())}
		_ = udp.SetNetworkLayerForChecksum(ip)
		return build(eth, ip, udp, gopacket.Payload(payload))
	}
	tcp := *s.tcp
	tcp.SrcPort, tcp.DstPort = layers.TCPPort(s.source.Port()), layers.TCPPort(s.destination.Port())
	_ = tcp.SetNetworkLayerForChecksum(ip)
	return build(eth, ip, &tcp, gopacket.Payload(payload))
}

// udp and tcp are what a Pod sends from a port of its own.
func (p *pod) udp(port uint16, to string) segment {
	return segment{
		sourceMAC: p.nic.MAC, destinationMAC: p.nic.GatewayMAC, size: 32,
		source: netip.AddrPortFrom(p.nic.Address, port), destination: netip.MustParseAddrPort(to),
	}
}

func (p *pod) tcp(port uint16, to string, flags layers.TCP) segment {
	s := p.udp(port, to)
	s.tcp = &flags
	return s
}

// hostUDP is what the host sends through its veth.
func (n *node) hostUDP(port uint16, to string) segment {
	return segment{
		sourceMAC: n.config.HostMAC, size: 32,
		source: netip.AddrPortFrom(n.address, port), destination: netip.MustParseAddrPort(to),
	}
}

func (p *pod) icmp(to string, kind layers.ICMPv4TypeCode) []byte {
	return build(ethernet(p.nic.MAC, p.nic.GatewayMAC, layers.EthernetTypeIPv4), ipv4(p.nic.Address, addr(to), layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: kind, Id: 3, Seq: 1}, gopacket.Payload("0123456789"))
}

func (p *pod) arp(operation uint16, sender, target string) *layers.ARP {
	return &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: operation,
		SourceHwAddress: p.nic.MAC.HardwareAddr(), SourceProtAddress: addr(sender).AsSlice(),
		DstHwAddress: make([]byte, 6), DstProtAddress: addr(target).AsSlice(),
	}
}

var broadcastMAC = MAC{255, 255, 255, 255, 255, 255}

func (p *pod) sendsARP(arp *layers.ARP) outcome {
	return p.sends(build(ethernet(p.nic.MAC, broadcastMAC, layers.EthernetTypeARP), arp))
}

// parse reads the outcome's frame and checks its checksums and lengths by making them anew.
func (o outcome) parse() (*layers.Ethernet, gopacket.Packet) {
	o.t.Helper()
	packet := gopacket.NewPacket(o.frame, layers.LayerTypeEthernet, gopacket.Default)
	eth := packet.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	var stack []gopacket.SerializableLayer
	var payload []byte
	var ip *layers.IPv4
	for _, layer := range packet.Layers() {
		switch l := layer.(type) {
		case *layers.IPv4:
			ip = l
			if ip.FragOffset != 0 || ip.Flags&layers.IPv4MoreFragments != 0 {
				return eth, packet
			}
		case *layers.TCP:
			require.NoError(o.t, l.SetNetworkLayerForChecksum(ip))
		case *layers.UDP:
			if l.Checksum == 0 {
				return eth, packet
			}
			require.NoError(o.t, l.SetNetworkLayerForChecksum(ip))
		case *gopacket.DecodeFailure: // of a protocol that the library does not know
			return eth, packet
		}
		stack = append(stack, layer.(gopacket.SerializableLayer))
		payload = layer.LayerPayload()
		if _, ok := layer.(gopacket.TransportLayer); ok {
			break // what ports say of the payload is not true here
		}
	}
	require.Equal(o.t, build(append(stack, gopacket.Payload(payload))...), o.frame, "a checksum or a length is wrong")
	return eth, packet
}

// is asserts the addresses and ports that the outcome's packet has.
func (o outcome) is(source, destination string) outcome {
	o.t.Helper()
	_, packet := o.parse()
	ip := packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	flow := packet.TransportLayer().TransportFlow()
	require.Equal(o.t, source+" > "+destination,
		ip.SrcIP.String()+":"+flow.Src().String()+" > "+ip.DstIP.String()+":"+flow.Dst().String())
	return o
}

func (o outcome) ttl() int {
	_, packet := o.parse()
	return int(packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4).TTL)
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func addrPortOf(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
