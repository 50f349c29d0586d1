package inspect

import (
	"fmt"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/mnicloud/mnicloud/network/datapath"
)

// Request is a packet to trace.
type Request struct {
	// From is NAMESPACE/POD, ADDRESS@VPC, node/NAME or outside/ADDRESS.
	From string
	// To is the destination.
	To netip.Addr
	// Port is the destination's; 0 for ICMP.
	Port uint16
	// Protocol is tcp (the first packet of a connection), udp or icmp (an echo request).
	Protocol string
	// SourcePort is the sender's; of ICMP the identifier.
	SourcePort uint16
	// Size is the packet's in bytes, with its IP header; the least that the protocol needs when smaller.
	Size int
}

// DefaultSourcePort is a port that connections rarely have, so that a trace asks about a new one.
const DefaultSourcePort = 61923

// frame makes the packet as the sender would send it.
func (r Request) frame(from, gateway datapath.MAC, source netip.Addr) ([]byte, error) {
	ip := &layers.IPv4{Version: 4, TTL: 64, Flags: layers.IPv4DontFragment, SrcIP: source.AsSlice(), DstIP: r.To.AsSlice()}
	eth := &layers.Ethernet{SrcMAC: from.HardwareAddr(), DstMAC: gateway.HardwareAddr(), EthernetType: layers.EthernetTypeIPv4}
	stack := []gopacket.SerializableLayer{eth, ip}
	header := 20
	switch r.Protocol {
	case "tcp":
		tcp := &layers.TCP{SrcPort: layers.TCPPort(r.SourcePort), DstPort: layers.TCPPort(r.Port), SYN: true, Window: 65535}
		ip.Protocol = layers.IPProtocolTCP
		_ = tcp.SetNetworkLayerForChecksum(ip) // it is IPv4
		stack, header = append(stack, tcp), header+20
	case "udp":
		udp := &layers.UDP{SrcPort: layers.UDPPort(r.SourcePort), DstPort: layers.UDPPort(r.Port)}
		ip.Protocol = layers.IPProtocolUDP
		_ = udp.SetNetworkLayerForChecksum(ip) // it is IPv4
		stack, header = append(stack, udp), header+8
	case "icmp":
		ip.Protocol = layers.IPProtocolICMPv4
		stack = append(stack, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: r.SourcePort, Seq: 1})
		header += 8
	default:
		return nil, fmt.Errorf("protocol %q is not tcp, udp or icmp", r.Protocol)
	}
	stack = append(stack, gopacket.Payload(make([]byte, max(0, r.Size-header))))
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		return nil, fmt.Errorf("make the packet: %w", err)
	}
	return buffer.Bytes(), nil
}

// packetIn is what a frame has inside: source, destination, and ports where it has any.
func packetIn(frame []byte) (source, destination netip.AddrPort, what string) {
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	ip, ok := packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	if !ok {
		return source, destination, "no IPv4 packet"
	}
	from, _ := netip.AddrFromSlice(ip.SrcIP.To4())
	to, _ := netip.AddrFromSlice(ip.DstIP.To4())
	var fromPort, toPort uint16
	what = ip.Protocol.String()
	switch l := packet.Layer(layers.LayerTypeICMPv4); {
	case l != nil:
		what = "ICMP " + l.(*layers.ICMPv4).TypeCode.String()
	case packet.TransportLayer() != nil:
		switch t := packet.TransportLayer().(type) {
		case *layers.TCP:
			fromPort, toPort = uint16(t.SrcPort), uint16(t.DstPort)
		case *layers.UDP:
			fromPort, toPort = uint16(t.SrcPort), uint16(t.DstPort)
		}
	}
	return netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort), what
}

// end writes an address, with its port where there is one.
func end(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}
