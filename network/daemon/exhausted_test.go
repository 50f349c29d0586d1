package daemon

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

const (
	// allBlocks are those of one address, allPorts their ports.
	allBlocks = (1<<16 - int(netv1.FirstNATPort)) / int(netv1.PortBlockSize)
	allPorts  = allBlocks * int(netv1.PortBlockSize)
)

// opener opens connections from Pods' ports to one address and port outside, and has the outside answer.
type opener struct {
	external netip.Addr
	out      []*injector // of the Pods
	in       *injector
	syn      [][]byte // of each Pod
	synAck   []byte
	inner    []netip.Addr
	buffer   []byte
}

func newOpener(t testing.TB, external, remote string, pods ...*pod) *opener {
	to := netip.MustParseAddrPort(remote)
	o := &opener{external: netip.MustParseAddr(external), in: pods[0].node.uplink(), buffer: make([]byte, 256)}
	for _, p := range pods {
		source, err := net.ParseMAC(p.nic.Status.MAC)
		require.NoError(t, err)
		gateway := net.HardwareAddr{2, 0, 0, 0, 1, 1} // nobody looks at it
		inner := netip.MustParseAddr(p.nic.Status.Address)
		o.inner = append(o.inner, inner)
		o.out = append(o.out, p.egress())
		o.syn = append(o.syn, tcpFrame(t, netip.AddrPortFrom(inner, 1), to, source, gateway, layers.TCP{SYN: true}))
	}
	var uplink net.HardwareAddr
	pods[0].node.inside(func() {
		l, err := netlink.LinkByIndex(o.in.ifindex)
		require.NoError(t, err)
		uplink = l.Attrs().HardwareAddr
	})
	o.synAck = tcpFrame(t, to, netip.AddrPortFrom(o.external, 1), net.HardwareAddr{2, 0, 0, 0, 0, 9}, uplink, layers.TCP{SYN: true, ACK: true})
	return o
}

// open sends what opens a connection from a Pod's port. It returns the external port that it left from; 0: it was dropped.
func (o *opener) open(t testing.TB, pod int, port uint16) uint16 {
	setPort(o.syn[pod], sourcePortAt, port)
	action, sent := o.out[pod].run(o.syn[pod], o.buffer)
	if action == shot {
		return 0
	}
	require.EqualValues(t, redirected, action)
	source, _ := endsOf(sent)
	if source.Addr() != o.external || source.Port() < uint16(netv1.FirstNATPort) {
		require.Fail(t, "it left as it came", "%s", source)
	}
	return source.Port()
}

// eventuallyOpens opens a connection as soon as the node has a port for it. It stays on the caller's thread, which is in the node's namespace.
func (o *opener) eventuallyOpens(t testing.TB, pod int, port uint16) uint16 {
	tick := time.NewTicker(moment)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if at := o.open(t, pod, port); at != 0 {
			return at
		}
	}
	require.Fail(t, "the node gets no port")
	return 0
}

// isAnswered asserts that the outside's answer to an external port reaches the Pod's port.
func (o *opener) isAnswered(t testing.TB, external uint16, pod int, port uint16) {
	setPort(o.synAck, destinationPortAt, external)
	action, back := o.in.run(o.synAck, o.buffer)
	_, to := endsOf(back)
	if want := netip.AddrPortFrom(o.inner[pod], port); action != redirected || to != want {
		require.Fail(t, "the answer does not arrive", "action %d, to %s, not %s", action, to, want)
	}
}

// isSentOn asserts that what comes in for an external port goes to another node as it is.
func (o *opener) isSentOn(t testing.TB, external uint16) {
	setPort(o.synAck, destinationPortAt, external)
	action, sent := o.in.run(o.synAck, o.buffer)
	_, to := endsOf(sent)
	require.Equal(t, netip.AddrPortFrom(o.external, external), to)
	require.EqualValues(t, redirected, action)
}

// The daemon claims all blocks of an address, one after the other, as they come into use; each of their ports has a connection to one
// and the same server; one more drops, counted with its reason. https://github.com/cilium/cilium/issues/33074
// https://github.com/cilium/cilium/issues/18956
func TestOfAHundredThousandConnectionsToOneServerAsManyLiveAsAnAddressHasPorts(t *testing.T) {
	const connections, external = 100_000, "203.0.113.5"
	var c *cloud
	t.Cleanup(func() { require.NoError(t, c.client.DeleteAllOf(context.Background(), &netv1.PortBlock{})) }) // when the daemons have ended
	c = running(t)
	n := c.nodes[0]
	front := c.subnet("front", "10.1.0.0/24", 1001, 1001)
	pods := []*pod{n.pod("one", front, "10.1.0.5", "198.18.0.5"), n.pod("two", front, "10.1.0.6", "198.18.0.6")}
	for _, p := range pods {
		p.mustAdd()
	}
	c.pool("203.0.113.0/24", n)
	c.natGateway("gateway", front, external)
	c.awaitPortBlocks("gateway", 1)
	o := newOpener(t, external, outsideAddress+":443", pods...)
	has := func(blocks string) bool {
		return strings.Contains(n.get("/metrics"), `mni_map_entries{map="nat_blocks"} `+blocks+"\n")
	}
	started := time.Now()
	full := false
	// open is what a Pod does: it tries again while the node has not got all ports yet.
	open := func(o *opener, pod int, port uint16) uint16 {
		for deadline := time.Now().Add(patience); ; {
			last := full
			if at := o.open(t, pod, port); at != 0 || last {
				return at
			}
			full = has("126")
			require.True(t, time.Now().Before(deadline), "the ports do not come: %v", c.portBlocks("gateway"))
		}
	}
	holders, dropped := map[uint16]int{}, 0
	inner := func(i int) (pod int, port uint16) { return i % len(pods), uint16(1024 + i/len(pods)) }
	n.inside(func() {
		for i := range connections {
			pod, port := inner(i)
			at := open(o, pod, port)
			if at == 0 {
				dropped++
				continue
			}
			if other, taken := holders[at]; taken {
				require.Fail(t, "two connections have a port", "%d: %d and %d", at, other, i)
			}
			holders[at] = i
			o.isAnswered(t, at, pod, port)
		}
		t.Logf("%d live, %d dropped in %.1f s", len(holders), dropped, time.Since(started).Seconds())
		require.Len(t, holders, allPorts, "every port of the address has a connection")
		require.Equal(t, connections-allPorts, dropped)
		require.GreaterOrEqual(t, n.dropped("nat_exhausted"), dropped, "each is counted with its reason")

		// Another server is another matter: it has all ports, too.
		const more = 500 // the table of flows is nearly full
		other := newOpener(t, external, "198.51.100.10:443", pods...)
		used := map[uint16]bool{}
		for i := range more {
			pod, port := inner(connections + i)
			at := other.open(t, pod, port)
			require.NotZero(t, at, "dropped although the server has no connection yet")
			require.False(t, used[at])
			used[at] = true
			other.isAnswered(t, at, pod, port)
		}
		// Nobody has lost anything by all that: of each sixteenth connection it is looked at.
		for at, i := range holders {
			if i%16 != 0 {
				continue
			}
			pod, port := inner(i)
			if now := o.open(t, pod, port); now != at {
				require.Fail(t, "the connection has another port", "%d, not %d", now, at)
			}
			o.isAnswered(t, at, pod, port)
		}
	})
	require.Len(t, c.awaitPortBlocks("gateway", allBlocks), allBlocks)
}
