package datapath

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// BenchmarkPolicies tells what a packet costs pod_egress by the number of its interface's rules: none, one, 1,000, each of
// another range and port. Of a known flow, and of a packet that the tables are asked about each time because no rule lets it pass, in runs
// of many packets; of a flow's first packet in single runs, of which the clock, and memory that nothing has touched since, are a part.
func BenchmarkPolicies(b *testing.B) {
	c := newTenants(b)
	n := c.nodes[0]
	d, err := Load(n.config) // as it is attached, without tracing
	require.NoError(b, err)
	defer func() { require.NoError(b, d.Close()) }()
	known := c.a1.tcp(4000, "10.0.1.12:80", layers.TCP{ACK: true})
	first := c.a1.udp(4000, "10.0.1.12:80")
	refused := c.a1.udp(4000, "10.0.1.12:81")
	known.size, first.size, refused.size = 1300, 1300, 1300
	least := func(frame []byte, verdict uint32, repeats int, before func()) time.Duration {
		least := time.Hour
		for range max(b.N, 500) {
			before()
			action, took, err := d.program(bpfProgPodEgress).Benchmark(frame, repeats, func() {})
			require.NoError(b, err)
			require.Equal(b, verdict, action)
			least = min(least, took)
		}
		return least
	}
	const drop, redirect = 2, 7 // of TC's verdicts
	for _, rules := range []int{0, 1, 1000} {
		// Measured programs see the packet at the loopback, whose number is 1.
		require.NoError(b, n.NICs.Set(1, withRules(b, n, c.a1.nic, rules)))
		b.ReportMetric(float64(least(known.frame(), redirect, 10_000, func() {})), fmt.Sprintf("known-%d-rules-ns", rules))
		b.ReportMetric(float64(least(first.frame(), redirect, 1, func() { clearFlows(b, d) })), fmt.Sprintf("first-%d-rules-ns", rules))
		if rules > 0 {
			b.ReportMetric(float64(least(refused.frame(), drop, 10_000, func() {})), fmt.Sprintf("refused-%d-rules-ns", rules))
		}
	}
	b.ReportMetric(0, "ns/op")
}

// withRules is an interface that may send what some rules allow; the last one is the one used.
func withRules(b *testing.B, n *node, nic NIC, rules int) NIC {
	if rules == 0 {
		return nic
	}
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
