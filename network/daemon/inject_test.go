package daemon

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
)

// injector gives packets that nobody sent to the program that a node's daemon attached to a link (BPF_PROG_TEST_RUN): the tables are
// those of the node's traffic, and nothing leaves.
type injector struct {
	node    *node
	program *ebpf.Program
	ifindex int
}

// What programs return: of a packet that goes on, and of one that was dropped.
const redirected, shot = 7, 2

// at finds the program at a link of the node.
func (n *node) at(ifindex int) *injector {
	t := n.cloud.t
	i := &injector{node: n, ifindex: ifindex}
	n.inside(func() {
		attached, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXIngress})
		if errors.Is(err, ebpf.ErrNotSupported) || err == nil && len(attached.Programs) == 0 {
			i.program = n.filterAt(ifindex)
			return
		}
		require.NoError(t, err)
		i.program, err = ebpf.NewProgramFromID(attached.Programs[0].ID)
		require.NoError(t, err)
	})
	t.Cleanup(func() { require.NoError(t, i.program.Close()) })
	return i
}

// filterAt is the program of the clsact filter at a link: this kernel has no tcx.
func (n *node) filterAt(ifindex int) *ebpf.Program {
	t := n.cloud.t
	l, err := netlink.LinkByIndex(ifindex)
	require.NoError(t, err)
	filters, err := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
	require.NoError(t, err)
	for _, f := range filters {
		if ours, ok := f.(*netlink.BpfFilter); ok {
			program, err := ebpf.NewProgramFromID(ebpf.ProgramID(ours.Id))
			require.NoError(t, err)
			return program
		}
	}
	require.Fail(t, "no program is attached", "link %d of %s", ifindex, n.name)
	return nil
}

// uplink is the program at the node's uplink.
func (n *node) uplink() *injector {
	var ifindex int
	n.inside(func() {
		l, err := netlink.LinkByName(n.options.Uplink)
		require.NoError(n.cloud.t, err)
		ifindex = l.Attrs().Index
	})
	return n.at(ifindex)
}

// egress is the program at the Pod's link.
func (p *pod) egress() *injector {
	var ifindex int
	p.inside(func() {
		l, err := netlink.LinkByName("eth0")
		require.NoError(p.node.cloud.t, err)
		ifindex = l.Attrs().ParentIndex
	})
	return p.node.at(ifindex)
}

// injected is the context of such a packet: the kernel's __sk_buff, of which only the interface is told.
type injected struct {
	_       [10]uint32
	Ifindex uint32
	_       [37]uint32
}

// run gives the program a frame. Frames are read and written in the node's namespace, which the caller is in.
func (i *injector) run(frame, out []byte) (action uint32, changed []byte) {
	options := &ebpf.RunOptions{Data: frame, DataOut: out, Context: injected{Ifindex: uint32(i.ifindex)}}
	action, err := i.program.Run(options)
	require.NoError(i.node.cloud.t, err)
	return action, options.DataOut
}

// tcpFrame is a TCP packet without a payload, whose addresses and ports retarget changes.
func tcpFrame(t require.TestingT, source, destination netip.AddrPort, sourceMAC, destinationMAC []byte, flags layers.TCP) []byte {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: source.Addr().AsSlice(), DstIP: destination.Addr().AsSlice()}
	flags.SrcPort, flags.DstPort, flags.Window = layers.TCPPort(source.Port()), layers.TCPPort(destination.Port()), 65535
	require.NoError(t, flags.SetNetworkLayerForChecksum(ip))
	buffer := gopacket.NewSerializeBuffer()
	require.NoError(t, gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: sourceMAC, DstMAC: destinationMAC, EthernetType: layers.EthernetTypeIPv4}, ip, &flags))
	return buffer.Bytes()
}

// Where a TCP frame without IP options has its addresses, ports and checksum.
const sourceAt, destinationAt, sourcePortAt, destinationPortAt, checksumAt = 14 + 12, 14 + 16, 34, 36, 34 + 16

// endsOf are the addresses and ports of a TCP frame.
func endsOf(frame []byte) (source, destination netip.AddrPort) {
	end := func(address, port int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(frame[address:])), binary.BigEndian.Uint16(frame[port:]))
	}
	return end(sourceAt, sourcePortAt), end(destinationAt, destinationPortAt)
}

// setPort changes a port of a TCP frame, and the checksum with it (RFC 1624).
func setPort(frame []byte, at int, port uint16) {
	old := binary.BigEndian.Uint16(frame[at:])
	sum := uint32(^binary.BigEndian.Uint16(frame[checksumAt:])) + uint32(^old) + uint32(port)
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(frame[at:], port)
	binary.BigEndian.PutUint16(frame[checksumAt:], ^uint16(sum))
}
