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
