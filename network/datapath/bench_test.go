package datapath

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// BenchmarkPrograms tells what a packet costs a program more than it costs an empty one, in ns of BPF_PROG_TEST_RUN: the
// least of many interleaved runs. The tables hold many entries besides those that are used.
//
// A run with repetitions gives the program its own output again, so that only flows can be measured whose packets look to
// it as before; single runs, of which the clock is a part, measure the others.
func BenchmarkPrograms(b *testing.B) {
	c := newTenants(b)
	n := c.nodes[0]
	neighbour := n.pod(7, 1001, "10.0.1.13")
	for i := range 100_000 {
		address := netip.AddrFrom4([4]byte{172, byte(16 + i>>16), byte(i >> 8), byte(i)})
		require.NoError(b, n.Endpoints.Set(EndpointKey{uint32(5000 + i), address}, Endpoint{VPCID: 9, Node: addr("192.0.2.2")}))
	}
	for i := range 5000 {
		require.NoError(b, n.Routes.Set(RouteKey{uint32(5000 + i), prefix("10.0.0.0/16")}, Route{1}))
	}
	c.service(TCP, "198.19.0.10:80", 0, "198.18.0.12:8080")
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	require.NoError(b, err)
	defer empty.Close()

	data := func(p *pod, to string) []byte {
		s := p.tcp(4000, to, layers.TCP{ACK: true})
		s.size = 1300
		return s.frame()
	}
	udp := func(p *pod, to string) []byte {
		s := p.udp(4000, to)
		s.size = 1300
		return s.frame()
	}
	local := neighbour.nic
	local.MAC = local.GatewayMAC // so that what was delivered could have been sent
	require.NoError(b, n.NICs.Set(uint32(neighbour.ifindex), local))
	toItself := data(neighbour, "10.0.1.13:80")
	copy(toItself[6:12], local.MAC[:])

	d, err := Load(n.config) // as it is attached, without tracing
	require.NoError(b, err)
	defer func() { require.NoError(b, d.Close()) }()
	for name, flow := range map[string]struct {
		nic     NIC
		frame   []byte
		repeats int
	}{
		"vpc/local":      {local, toItself, 10_000},
		"vpc/remote":     {c.a1.nic, data(c.a1, "10.0.1.12:80"), 10_000},
		"default/remote": {c.web1.nic, data(c.web1, "198.18.0.12:80"), 10_000},
		"service/remote": {c.web1.nic, data(c.web1, "198.19.0.10:80"), 1},
		// The flow is known; its first packet (a clock is a part) is looked up in the tables, whatever the flags say.
		"vpc/remote/1-rule":           {withPolicy(b, n, c.a1.nic, 1), data(c.a1, "10.0.1.12:80"), 10_000},
		"vpc/remote/1000-rules":       {withPolicy(b, n, c.a1.nic, 1000), data(c.a1, "10.0.1.12:80"), 10_000},
		"vpc/remote/1-rule/first":     {withPolicy(b, n, c.a1.nic, 1), udp(c.a1, "10.0.1.12:80"), 1},
		"vpc/remote/1000-rules/first": {withPolicy(b, n, c.a1.nic, 1000), udp(c.a1, "10.0.1.12:80"), 1},
	} {
		b.Run(name, func(b *testing.B) {
			// Measured programs see the packet at the loopback, whose number is 1.
			require.NoError(b, n.NICs.Set(1, flow.nic))
			measure := func(program *ebpf.Program, action uint32) time.Duration {
				if strings.HasSuffix(name, "/first") {
					clearFlows(b, d)
				}
				got, duration, err := program.Benchmark(flow.frame, flow.repeats, func() {})
				require.NoError(b, err)
				require.Equal(b, action, got)
				return duration
			}
			least, leastEmpty := time.Hour, time.Hour
			for range b.N {
				least = min(least, measure(d.program(bpfProgPodEgress), 7))
				leastEmpty = min(leastEmpty, measure(empty, 0))
			}
			b.ReportMetric(float64(least-leastEmpty), "ns/packet")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// withPolicy is an interface that may send what some rules allow, each another range and port; the last one is the one used.
func withPolicy(b *testing.B, n *node, nic NIC, rules int) NIC {
	var p Policy
	for i := range rules - 1 {
		peer := Peer{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(1 + i>>6), byte(i << 2), 0}), 22)}
		p.Rules = append(p.Rules, Rule{[]Peer{peer}, []Ports{port(TCP, uint16(1000+i)), port(UDP, uint16(1000+i))}})
	}
	p.Rules = append(p.Rules, Rule{from("10.0.1.0/24"), []Ports{port(TCP, 80), port(UDP, 80)}})
	var err error
	nic.EgressPolicy, err = n.Policies.Number(p)
	require.NoError(b, err)
	nic.IngressPolicy = PolicyClosed
	return nic
}

func clearFlows(b *testing.B, d *Datapath) {
	var keys []bpfFlowKey
	var key bpfFlowKey
	var flow bpfFlow
	flows := d.collection.Maps[bpfMapFlows].Iterate()
	for flows.Next(bytesOf(&key), bytesOf(&flow)) {
		keys = append(keys, key)
	}
	for _, key := range keys {
		require.NoError(b, d.collection.Maps[bpfMapFlows].Delete(bytesOf(&key)))
	}
}
