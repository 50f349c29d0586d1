package testnet

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
)

// Addresses of every Network.
const (
	// Underlay is the range of nodes' uplinks: the first node has 192.0.2.1.
	Underlay = "192.0.2.0/24"
	// OutsideAddress is a host of the outside, which nodes reach by their default route.
	OutsideAddress = "203.0.113.10"
	// UplinkName is each node's link to the underlay.
	UplinkName = "eth0"

	outsideGateway = "192.0.2.254"
	// hostMTU is that of the node's side of a Pod's link: whatever a Pod sends arrives there.
	hostMTU = 65535
)

// Network is nodes on one underlay, and an outside.
type Network struct {
	t       testing.TB
	Nodes   []*Node
	Outside *Namespace
	bridge  *Namespace
}

// New makes a network of nodes.
func New(t testing.TB, nodes int) *Network {
	t.Helper()
	n := &Network{t: t, bridge: NewNamespace(t, "underlay")}
	require.NoError(t, n.bridge.links.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}))
	n.bridge.up("bridge")
	n.Outside = n.join("outside", outsideGateway+"/24")
	n.Outside.AddAddress("lo", OutsideAddress+"/32")
	for i := range nodes {
		node := &Node{Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})}
		node.Namespace = n.join(fmt.Sprintf("node-%d", i+1), node.Address.String()+"/24")
		node.AddRoute("0.0.0.0/0", UplinkName, outsideGateway, "")
		node.Sysctl("net/ipv4/ip_forward", "1")
		node.Sysctl("net/ipv4/conf/all/rp_filter", "1") // strict, as distributions have it
		n.Nodes = append(n.Nodes, node)
	}
	return n
}

// join makes a namespace with an uplink.
func (n *Network) join(name, address string) *Namespace {
	n.t.Helper()
	ns := NewNamespace(n.t, name)
	require.NoError(n.t, n.bridge.links.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: UplinkName, PeerNamespace: netlink.NsFd(int(ns.handle)),
	}))
	require.NoError(n.t, n.bridge.links.LinkSetMaster(n.bridge.Link(name), n.bridge.Link("bridge")))
	n.bridge.up(name)
	ns.up(UplinkName)
	ns.AddAddress(UplinkName, address)
	return ns
}

// Node is a node's namespace. Its uplink has the MTU 1500.
type Node struct {
	*Namespace
	Address netip.Addr
	pods    int
}

// Devices are a node's links that carry Pods' traffic.
type Devices struct {
	// Host is the host's veth, on which the host sends to and receives from Pods; HostPeer its far end.
	Host, HostPeer netlink.Link
	// VXLAN is a flow-based vxlan device.
	VXLAN netlink.Link
}

// AddDevices makes a node's devices, with routes to the given ranges from the node's address through the host's veth.
func (n *Node) AddDevices(mtu int, port uint16, ranges ...string) Devices {
	n.t.Helper()
	require.NoError(n.t, n.links.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "h0", MTU: mtu}, PeerName: "h1"}))
	require.NoError(n.t, n.links.LinkAdd(&netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: "vxlan", MTU: mtu}, FlowBased: true, Port: int(port), VxlanId: 0,
	}))
	require.NoError(n.t, n.links.LinkSetARPOff(n.Link("h0")))
	for _, name := range []string{"h0", "h1", "vxlan"} {
		n.up(name)
	}
	for _, r := range ranges {
		n.AddRoute(r, "h0", "", n.Address.String())
	}
	return Devices{Host: n.Link("h0"), HostPeer: n.Link("h1"), VXLAN: n.Link("vxlan")}
}

// Pod is a namespace with one interface, eth0, whose other side is on a node.
type Pod struct {
	*Namespace
	Node    *Node
	Address netip.Addr
	MAC     net.HardwareAddr
	// HostLink is the node's side.
	HostLink netlink.Link
}

// AddPod makes a Pod with an address (10.0.1.5/24) and a default route through a gateway.
func (n *Node) AddPod(name, address, gateway string, mtu int) *Pod {
	n.t.Helper()
	n.pods++
	prefix := netip.MustParsePrefix(address)
	p := &Pod{Namespace: NewNamespace(n.t, name), Node: n, Address: prefix.Addr()}
	host := fmt.Sprintf("pod%d", n.pods)
	require.NoError(n.t, n.links.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: host, MTU: hostMTU}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(p.handle)), PeerMTU: uint32(mtu),
	}))
	n.up(host)
	p.up("eth0")
	p.AddAddress("eth0", address)
	p.AddRoute("0.0.0.0/0", "eth0", gateway, "")
	p.MAC = p.Link("eth0").Attrs().HardwareAddr
	p.HostLink = n.Link(host)
	return p
}

// Bridge puts a bridge into the Pod and a namespace behind it that takes over the Pod's address and MAC, as a virtual machine
// does; eth0 becomes a port with another MAC.
func (p *Pod) Bridge(name, gateway string) *Namespace {
	p.t.Helper()
	machine := NewNamespace(p.t, name)
	bits, err := p.links.AddrList(p.Link("eth0"), netlink.FAMILY_V4)
	require.NoError(p.t, err)
	require.NoError(p.t, p.links.AddrDel(p.Link("eth0"), &bits[0]))
	require.NoError(p.t, p.links.LinkSetHardwareAddr(p.Link("eth0"), net.HardwareAddr{2, 0xbb, 0, 0, 0, 1}))
	require.NoError(p.t, p.links.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}))
	require.NoError(p.t, p.links.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "tap"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(machine.handle)), PeerHardwareAddr: p.MAC,
	}))
	for _, port := range []string{"eth0", "tap"} {
		require.NoError(p.t, p.links.LinkSetMaster(p.Link(port), p.Link("bridge")))
		p.up(port)
	}
	p.up("bridge")
	machine.up("eth0")
	machine.AddAddress("eth0", bits[0].IPNet.String())
	machine.AddRoute("0.0.0.0/0", "eth0", gateway, "")
	return machine
}

func parseIP(s string) net.IP {
	if s == "" {
		return nil
	}
	return net.ParseIP(s)
}
