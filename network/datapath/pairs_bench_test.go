package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// way is two namespaces and the address at which the first reaches the second.
type way struct {
	from, to *testnet.Namespace
	address  string
}

// BenchmarkPairs compares Pods' traffic through the datapath with the same through what a kernel has without it: on one node with a
// bare pair of veth, between nodes with a bridge and a VXLAN device on each. A pair of runs follows each other at once, each time in the
// other order, so that load on the machine meets both; told is the median of the pairs' ratios (over 1: the datapath is faster), of
// bytes through one TCP connection ("stream") and of round trips of one byte ("rr"). One network is faster than another that is made
// just so, by up to a tenth and for as long as it lives: there are several of each kind, and pairs go through them in turn. Aims: 0.95
// of bare veth; 0.95 of bridge and VXLAN whose netfilter hooks are off, more than 1 where they are on, with a table that follows
// connections as every node of Kubernetes has one. The VPC has no Services, and the daemon would say so.
func BenchmarkPairs(b *testing.B) {
	for name, kinds := range map[string]struct{ ours, others func(*testing.B) way }{
		"one-node/bare-veth":          {func(b *testing.B) way { return ours(b, true) }, bareVeth},
		"nodes/bridge-vxlan":          {func(b *testing.B) way { return ours(b, false) }, func(b *testing.B) way { return bridgeAndVXLAN(b, false) }},
		"nodes/bridge-vxlan-nf-hooks": {func(b *testing.B) way { return ours(b, false) }, func(b *testing.B) way { return bridgeAndVXLAN(b, true) }},
	} {
		b.Run(name, func(b *testing.B) {
			const networks = 6
			var pairs [networks]struct{ ours, others *connection }
			for i := range pairs {
				pairs[i].ours, pairs[i].others = connect(b, kinds.ours(b)), connect(b, kinds.others(b))
			}
			for _, kind := range []struct {
				name string
				run  func(*connection, time.Duration) float64
			}{{"stream", (*connection).stream}, {"rr", (*connection).roundTrips}} {
				b.Run(kind.name, func(b *testing.B) {
					const window, warmUp = 250 * time.Millisecond, 100 * time.Millisecond
					for _, p := range pairs {
						kind.run(p.ours, warmUp)
						kind.run(p.others, warmUp)
					}
					var ratios, ourRates, otherRates []float64
					for i := range max(b.N, 10*networks) {
						p := pairs[i%networks]
						var our, other float64
						if i/networks%2 == 0 {
							our, other = kind.run(p.ours, window), kind.run(p.others, window)
						} else {
							other, our = kind.run(p.others, window), kind.run(p.ours, window)
						}
						ratios, ourRates, otherRates = append(ratios, our/other), append(ourRates, our), append(otherRates, other)
					}
					b.ReportMetric(middle(ratios), "ratio")
					b.ReportMetric(middle(ourRates), "ours/s")
					b.ReportMetric(middle(otherRates), "others/s")
					b.ReportMetric(float64(len(ratios)), "pairs")
					b.ReportMetric(0, "ns/op")
				})
			}
		})
	}
}

// ours is two Pods of a VPC without Services, on one node or on two.
func ours(b *testing.B, oneNode bool) way {
	r := newReality(b, false)
	to, at := r.a2, r.nodes[1]
	if oneNode {
		at = r.nodes[0]
		to = r.pod(at, "a5", 7, 1001, "10.0.1.15")
		require.NoError(b, at.Do(func() error { return at.AttachPod(to.ifindex()) }))
	}
	for pod, node := range map[*realPod]*realNode{r.a1: r.nodes[0], to: at} {
		pod.nic.NoServices = true
		require.NoError(b, node.NICs.Set(uint32(pod.ifindex()), pod.nic))
	}
	return way{r.a1.Namespace, to.Namespace, to.nic.Address.String()}
}

func middle(of []float64) float64 {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

// bareVeth is two namespaces with a veth between them.
func bareVeth(b *testing.B) way {
	left, right := testnet.NewNamespace(b, "left"), testnet.NewNamespace(b, "right")
	left.AddVeth("eth0", right, "eth0", 1450)
	left.AddAddress("eth0", "10.7.0.1/24")
	right.AddAddress("eth0", "10.7.0.2/24")
	return way{left, right, "10.7.0.2"}
}

// bridgeAndVXLAN is two nodes, on each of them a bridge that a namespace and a VXLAN device are ports of. With hooks bridged packets
// meet netfilter, and a table that lets through what belongs to connections.
func bridgeAndVXLAN(b *testing.B, hooks bool) way {
	network := testnet.New(b, 2)
	var ends []*testnet.Namespace
	for i, n := range network.Nodes {
		value := "0"
		if hooks {
			value = "1"
			require.NoError(b, n.Do(followConnections))
		}
		other := network.Nodes[1-i].Address
		require.NoError(b, n.Links().LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", MTU: 1450}}))
		require.NoError(b, n.Links().LinkAdd(&netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: "vxlan0", MTU: 1450}, VxlanId: 42, Port: 4789, SrcAddr: n.Address.AsSlice(), Group: other.AsSlice(),
			VtepDevIndex: n.Link(testnet.UplinkName).Attrs().Index, Learning: true,
		}))
		end := testnet.NewNamespace(b, fmt.Sprint("end-", i))
		n.AddVeth("port0", end, "eth0", 1450)
		for _, port := range []string{"port0", "vxlan0"} {
			require.NoError(b, n.Links().LinkSetMaster(n.Link(port), n.Link("br0")))
			require.NoError(b, n.Links().LinkSetUp(n.Link(port)))
		}
		require.NoError(b, n.Links().LinkSetUp(n.Link("br0")))
		n.Sysctl("net/bridge/bridge-nf-call-iptables", value)
		end.AddAddress("eth0", fmt.Sprintf("10.7.0.%d/24", 1+i))
		ends = append(ends, end)
	}
	return way{ends[0], ends[1], "10.7.0.2"}
}

// followConnections makes a table whose forward chain accepts what belongs to connections, and what begins one.
func followConnections() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "filter"})
	chain := c.AddChain(&nftables.Chain{
		Name: "forward", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	known := make([]byte, 4)
	binary.NativeEndian.PutUint32(known, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED|expr.CtStateBitNEW)
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: known, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}})
	return c.Flush()
}

// connection is a TCP connection whose ends are blocking sockets, so that no poller of Go's stands between the kernel and the clock.
type connection struct {
	b              *testing.B
	client, server int
}

func connect(b *testing.B, w way) *connection {
	c := &connection{b: b}
	var listener int
	require.NoError(b, w.to.Do(func() (err error) {
		if listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.Bind(listener, &unix.SockaddrInet4{}); err != nil {
			return err
		}
		return unix.Listen(listener, 1)
	}))
	defer func() { require.NoError(b, unix.Close(listener)) }()
	bound, err := unix.Getsockname(listener)
	require.NoError(b, err)
	require.NoError(b, w.from.Do(func() (err error) {
		if c.client, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(c.client, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return err
		}
		// One that sends as much as arrives, at once: others (BBR) pace by what they measured, and their guesses would be compared.
		if err := unix.SetsockoptString(c.client, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno"); err != nil {
			return err
		}
		return unix.Connect(c.client, &unix.SockaddrInet4{Port: bound.(*unix.SockaddrInet4).Port, Addr: netip.MustParseAddr(w.address).As4()})
	}))
	c.server, _, err = unix.Accept(listener)
	require.NoError(b, err)
	require.NoError(b, unix.SetsockoptInt(c.server, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	b.Cleanup(func() { require.NoError(b, unix.Close(c.client)); require.NoError(b, unix.Close(c.server)) })
	return c
}

// Messages begin with one of these.
const (
	more byte = iota + 1
	last
)

// roundTrips sends a byte there and back for that long and tells how often a second.
func (c *connection) roundTrips(length time.Duration) float64 {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		buffer := make([]byte, 1)
		for {
			if _, err := unix.Read(c.server, buffer); err != nil {
				done <- err
				return
			}
			if _, err := unix.Write(c.server, buffer); err != nil || buffer[0] == last {
				done <- err
				return
			}
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n, buffer, start := 0, []byte{more}, time.Now()
	for buffer[0] != last {
		if time.Since(start) > length {
			buffer[0] = last
		}
		_, err := unix.Write(c.client, buffer)
		require.NoError(c.b, err)
		_, err = unix.Read(c.client, buffer)
		require.NoError(c.b, err)
		n++
	}
	rate := float64(n) / time.Since(start).Seconds()
	require.NoError(c.b, <-done)
	return rate
}

// stream sends as much as goes for that long and tells how many bytes arrive a second.
func (c *connection) stream(length time.Duration) float64 {
	const size = 128 << 10
	done := make(chan error, 1)
	received := 0
	start := time.Now()
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		buffer := make([]byte, size)
		for {
			n, err := unix.Read(c.server, buffer)
			received += n
			if err != nil || n == 0 || buffer[n-1] == last {
				done <- err
				return
			}
		}
	}()
	buffer := make([]byte, size)
	for time.Since(start) < length {
		_, err := unix.Write(c.client, buffer)
		require.NoError(c.b, err)
	}
	_, err := unix.Write(c.client, []byte{last})
	require.NoError(c.b, err)
	require.NoError(c.b, <-done)
	return float64(received) / time.Since(start).Seconds()
}
