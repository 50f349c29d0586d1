package datapath

import (
	"net/netip"
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
		require.NoError(b, n.Routes.Set(RouteKey{uint32(5000 + i), prefix("10.0.0.0/16")}, Route{VNI: 1}))
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
	} {
		b.Run(name, func(b *testing.B) {
			// Measured programs see the packet at the loopback, whose number is 1.
			require.NoError(b, n.NICs.Set(1, flow.nic))
			measure := func(program *ebpf.Program, action uint32) time.Duration {
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

// BenchmarkServices tells what a packet to a Service costs pod_egress when it is the only one, and when there are 50,000 and the
// table of flows is full: single runs, of which the clock is a part.
func BenchmarkServices(b *testing.B) {
	c := newTenants(b)
	n := c.nodes[0]
	c.service(TCP, "198.19.0.10:80", 0, "198.18.0.12:8080")
	c.serviceIn(7, TCP, "198.19.0.10:80", "10.0.1.12:8080")
	d, err := Load(n.config)
	require.NoError(b, err)
	defer func() { require.NoError(b, d.Close()) }()
	least := func(p *pod, fresh bool) time.Duration {
		require.NoError(b, n.NICs.Set(1, p.nic)) // measured programs see the packet at the loopback
		frame := p.tcp(4000, "198.19.0.10:80", layers.TCP{ACK: true}).frame()
		least := time.Hour
		for range max(b.N, 2000) {
			if fresh { // the flow's first packet, every time
				key := bpfConntrackKey{
					Source: toAddress(p.nic.Address), Destination: toAddress(addr("198.19.0.10")), VpcId: p.nic.VPCID,
					SourcePort: networkPort(4000), DestinationPort: networkPort(80), Protocol: uint8(TCP),
				}
				require.NoError(b, n.Conntrack.delete(key))
			}
			action, took, err := d.program(bpfProgPodEgress).Benchmark(frame, 1, func() {})
			require.NoError(b, err)
			require.EqualValues(b, 7, action)
			least = min(least, took)
		}
		return least
	}
	measure := func(suffix string) {
		for name, p := range map[string]*pod{"default": c.web1, "vpc": c.a1} {
			b.ReportMetric(float64(least(p, false)), name+"-established-"+suffix+"-ns")
			b.ReportMetric(float64(least(p, true)), name+"-new-"+suffix+"-ns")
		}
	}
	measure("one")
	for i := range 50_000 {
		key := ServiceKey{VPCID: uint32(1 + i%1000), Address: netip.AddrFrom4([4]byte{198, 19, byte(1 + i>>8&63), byte(i)}), Port: uint16(1 + i>>8), Protocol: TCP}
		require.NoError(b, n.Services.Set(key, Service{Backends: []Backend{{addr("10.0.1.12"), 80}, {addr("10.0.1.13"), 80}}}))
	}
	for i := range 131_072 {
		key := bpfConntrackKey{Source: toAddress(addr("10.9.9.9")), VpcId: uint32(i), SourcePort: uint16(i), Protocol: uint8(TCP)}
		require.NoError(b, n.Conntrack.m.Put(bytesOf(&key), bytesOf(&bpfConntrack{LastSeen: n.seconds()})))
	}
	measure("many")
	b.ReportMetric(0, "ns/op")
}
