package daemon

import (
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/isolate"
)

func hostPort(port int, more ...any) map[string]any {
	mapping := map[string]any{"hostPort": port, "containerPort": 7000, "protocol": "udp"}
	for i := 0; i+1 < len(more); i += 2 {
		mapping[more[i].(string)] = more[i+1]
	}
	return mapping
}

func TestAHostPortLeadsToItsPod(t *testing.T) {
	c := running(t)
	subnet := c.defaultSubnet()
	one, two := c.nodes[0], c.nodes[1]
	web, neighbour, far := one.pod("web", subnet, "198.18.0.5", "198.18.0.5"), one.pod("near", subnet, "198.18.0.6", "198.18.0.6"), two.pod("far", subnet, "198.18.0.7", "198.18.0.7")
	web.ports = []map[string]any{hostPort(port), hostPort(7001, "hostIP", "203.0.113.77")}
	for _, p := range []*pod{web, neighbour, far} {
		p.mustAdd()
		c.answer(p.inside, p.name)
	}
	addAddress(t, loopback(t), "203.0.113.10/32")
	address := one.address.String()
	c.eventually(machine, address, "web to 192.0.2.2: hello") // a member: the node stands for it
	c.eventually(one.inside, address, "web to 192.0.2.2: hello")
	c.eventually(two.inside, address, "web to 192.0.2.2: hello")
	c.eventually(far.inside, address, "web to 192.0.2.2: hello")
	c.eventually(neighbour.inside, address, "web to 192.0.2.2: hello")
	c.eventually(web.inside, address, "web to 192.0.2.2: hello") // itself
	outside := func(f func()) { machine(f) }
	c.eventuallyFrom(outside, "203.0.113.10", address, "web to 203.0.113.10: hello") // the outside is seen as it is
	require.Empty(t, c.ask(one.inside, "203.0.113.77"), "another address's port")
	require.Empty(t, c.ask(two.inside, two.address.String()), "another node's port")
	require.Empty(t, c.ask(one.inside, netv1.ResolverAddress), "the resolver's address is no Pod's")

	// It survives the daemon, moves with a new sandbox, with its flows, and goes with the Pod.
	one.stop(syscall.SIGKILL)
	require.Equal(t, "web to 192.0.2.2: hello", c.ask(machine, address))
	one.start()
	one.awaitReady()
	again := &pod{node: one, name: web.name, id: "sandbox-again", netns: isolate.Netns(t), nic: web.nic, ports: web.ports}
	again.mustAdd()
	c.answer(again.inside, "again")
	require.NoError(t, web.del())
	c.eventually(machine, address, "again to 192.0.2.2: hello")
	require.NoError(t, again.del())
	require.Eventually(t, func() bool { return c.ask(machine, address) == "" }, patience, moment)
}

// Upstream's Conformance test "HostPort validates that there is no conflict between pods with same hostPort but different hostIP".
func TestAHostPortOnLoopbackIsTheHostsOwn(t *testing.T) {
	c := running(t)
	subnet := c.defaultSubnet()
	one := c.nodes[0]
	address := one.address.String()
	inner, outer := one.pod("inner", subnet, "198.18.0.5", "198.18.0.5"), one.pod("outer", subnet, "198.18.0.6", "198.18.0.6")
	inner.ports = []map[string]any{hostPort(port, "hostIP", "127.0.0.1")}
	outer.ports = []map[string]any{hostPort(port, "hostIP", address)}
	for _, p := range []*pod{inner, outer} {
		p.mustAdd()
		c.answer(p.inside, p.name)
	}
	c.eventually(one.inside, "127.0.0.1", "inner to 192.0.2.2: hello")
	c.eventuallyFrom(one.inside, address, "127.0.0.1", "inner to 192.0.2.2: hello")
	c.eventually(one.inside, address, "outer to 192.0.2.2: hello")
	c.eventually(machine, address, "outer to 192.0.2.2: hello")

	// What listens on loopback stays the host's own (CVE-2020-8558).
	heard := c.listen(one.inside)
	require.Eventually(t, func() bool { one.inside(func() { c.whisper("127.0.0.1") }); return heard() > 0 }, patience, moment, "the host hears itself")
	before := heard()
	for range 20 {
		c.sendFrame(inner, "127.0.0.1")
	}
	require.Eventually(t, func() bool { c.sendFrame(inner, address); return heard() > before }, patience, moment, "frames arrive")
	count := heard()
	one.inside(func() { require.NoError(t, removeChain(PortsTable("mni"), "guard")) })
	require.Eventually(t, func() bool { c.sendFrame(inner, "127.0.0.1"); return heard() > count }, patience, moment, "it is the guard that keeps them away")

	require.NoError(t, inner.del())
	require.Eventually(t, func() bool { return c.ask(one.inside, "127.0.0.1") == "" }, patience, moment)
	c.eventually(one.inside, address, "outer to 192.0.2.2: hello")
	one.inside(func() {
		value, err := os.ReadFile("/proc/sys/net/ipv4/conf/mnih0/route_localnet")
		require.NoError(t, err)
		require.Equal(t, "0\n", string(value))
	})
}

func TestATenantsPodHasNoPortOfTheHost(t *testing.T) {
	c := running(t)
	red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
	web := c.nodes[0].pod("web", red, "10.1.0.5", "198.18.0.5")
	web.ports = []map[string]any{hostPort(port)}
	_, err := web.add()
	require.ErrorContains(t, err, "hostPort 7000 of containerPort 7000: Pods in a tenant's VPC have no ports of the host; remove hostPort")
	require.Empty(t, c.nodes[0].links(), "nothing half-made")
}

// eventuallyFrom asks from one address of a place.
func (c *cloud) eventuallyFrom(where place, source, address, answer string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.askFrom(where, net.ParseIP(source), address) == answer }, patience, moment, answer)
}

// whisper sends one datagram to where listen listens.
func (c *cloud) whisper(address string) {
	conn, err := net.Dial("udp4", net.JoinHostPort(address, strconv.Itoa(port+1)))
	require.NoError(c.t, err)
	defer conn.Close()
	_, _ = conn.Write([]byte("I am"))
}

// sendFrame sends a datagram from the Pod to an address that its own stack would keep to itself.
func (c *cloud) sendFrame(p *pod, to string) {
	mac, err := net.ParseMAC(p.nic.Status.MAC)
	require.NoError(c.t, err)
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.ParseIP(p.nic.Status.Address), DstIP: net.ParseIP(to)}
	udp := &layers.UDP{SrcPort: 4000, DstPort: port + 1}
	require.NoError(c.t, udp.SetNetworkLayerForChecksum(ip))
	buffer := gopacket.NewSerializeBuffer()
	require.NoError(c.t, gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: mac, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, EthernetType: layers.EthernetTypeIPv4}, ip, udp, gopacket.Payload("I am")))
	p.inside(func() {
		link, err := net.InterfaceByName("eth0")
		require.NoError(c.t, err)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		require.NoError(c.t, err)
		defer unix.Close(fd)
		require.NoError(c.t, unix.Sendto(fd, buffer.Bytes(), 0, &unix.SockaddrLinklayer{Ifindex: link.Index, Halen: 6}))
	})
}

func removeChain(table, chain string) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	t := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: table}
	c := &nftables.Chain{Table: t, Name: chain}
	conn.FlushChain(c)
	conn.DelChain(c)
	return conn.Flush()
}
