package datapath

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// Every packet of this package's tests is foretold by a tracer first (node.run), with every reason for a drop among them. Here is
// what those tests do not show.

// content is everything in the pinned maps but what programs use as memory.
func (n *node) content() map[string]map[string]string {
	t := n.cloud.t
	all := map[string]map[string]string{}
	for name, m := range n.tracer.pinned {
		if m.Type() == ebpf.PerCPUArray || m.Type() == ebpf.PerCPUHash {
			continue
		}
		all[name] = map[string]string{}
		key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
		iterator := m.Iterate()
		for iterator.Next(key, value) {
			all[name][string(key)] = string(value)
		}
		require.NoError(t, iterator.Err())
	}
	return all
}

// tracesNothing traces a packet and demands that no map has changed. It returns the verdict.
func (n *node) tracesNothing(p Packet) Verdict {
	t := n.cloud.t
	t.Helper()
	drops, err := n.Drops.List()
	require.NoError(t, err)
	deliveries, err := n.Deliveries.List()
	require.NoError(t, err)
	before := n.content()
	v, err := n.tracer.Trace(p)
	require.NoError(t, err)
	require.Equal(t, before, n.content(), "a trace has changed a map")
	dropsAfter, err := n.Drops.List()
	require.NoError(t, err)
	deliveriesAfter, err := n.Deliveries.List()
	require.NoError(t, err)
	require.Equal(t, drops, dropsAfter)
	require.Equal(t, deliveries, deliveriesAfter)
	return v
}

func (v Verdict) kinds() (kinds []StepKind) {
	for _, step := range v.Steps {
		kinds = append(kinds, step.Kind)
	}
	return kinds
}

func TestATraceChangesNothing(t *testing.T) {
	c := newTenants(t)
	n := c.nodes[0]
	c.infrastructureOf(c.a1, "198.18.0.51")
	c.service(TCP, "198.19.0.10:80", time.Hour, "198.18.0.12:8080")
	neighbour := n.pod(7, 1001, "10.0.1.13")
	neighbour.setPolicies(policy(Rule{Peers: from("10.0.1.0/24"), Ports: []Ports{port(TCP, 80)}}), policy())
	syn, ack, fin := layers.TCP{SYN: true}, layers.TCP{ACK: true}, layers.TCP{FIN: true, ACK: true}
	ofService := func(flags layers.TCP) Packet {
		return Packet{Ifindex: c.web1.ifindex, Frame: c.web1.tcp(4000, "198.19.0.10:80", flags).frame()}
	}
	toNeighbour := func(flags layers.TCP) Packet {
		return Packet{Ifindex: c.a1.ifindex, Frame: c.a1.tcp(4000, "10.0.1.13:80", flags).frame()}
	}
	opening := func(flags layers.TCP) Packet {
		return Packet{Host: true, Frame: n.hostTCP(4000, "198.18.0.51:80", flags)}
	}
	fragment := Packet{Ifindex: c.a1.ifindex, Frame: c.a1.fragment("10.0.1.13", 9, 0, true, make([]byte, 64))}
	refused := Packet{Ifindex: c.web1.ifindex, Frame: c.web1.tcp(4000, "198.19.0.99:80", syn).frame()}
	refuse := func() {
		c.web1.sends(refused.Frame).isToldTo(c.web1, bpfDropReasonDROP_UNKNOWN_SERVICE)
	}

	// A flow is new to the trace however often it is traced, and known once a packet has passed.
	for range 2 {
		require.Equal(t, []Step{
			{Kind: StepSource, Number: 1, Address: addr("198.18.0.11")},
			{Kind: StepService, Number: 8080, Address: addr("198.18.0.12")},
			{Kind: StepEndpoint, Number: uint32(EndpointInterface), Address: addr("192.0.2.2")},
		}, n.tracesNothing(ofService(syn)).Steps)
		v := n.tracesNothing(toNeighbour(syn))
		require.Equal(t, []StepKind{StepSource, StepSubnet, StepEndpoint, StepIngress}, v.kinds())
		require.False(t, v.Steps[3].Known)
		require.Equal(t, TargetInterface, v.Target)
		require.Equal(t, neighbour.ifindex, v.Ifindex)
		require.Equal(t, []StepKind{StepEndpoint, StepOpened}, n.tracesNothing(opening(syn)).kinds())
		require.Equal(t, Reason(bpfDropReasonDROP_UNKNOWN_SERVICE), n.tracesNothing(refused).Drop)
		n.tracesNothing(fragment)
	}
	for _, p := range []Packet{ofService(syn), toNeighbour(syn)} {
		n.run(bpfProgPodEgress, p.Frame, skBuff{ifindex: uint32(p.Ifindex)}, bpfTrace{})
	}
	n.hostSends(opening(syn).Frame).reaches(c.a1)
	refuse()
	for _, flags := range []layers.TCP{ack, fin, {RST: true}} {
		require.True(t, n.tracesNothing(ofService(flags)).Steps[1].Known)
		require.True(t, n.tracesNothing(toNeighbour(flags)).Steps[3].Known)
		n.tracesNothing(opening(flags))
	}
	// A change of policy is judged in the copy alone.
	neighbour.setPolicies(policy(), policy())
	require.Equal(t, Reason(bpfDropReasonDROP_POLICY_INGRESS), n.tracesNothing(toNeighbour(ack)).Drop)
	// A backend that is gone: the program forgets the flow, the trace does not.
	require.NoError(t, n.Endpoints.Delete(EndpointKey{1, addr("198.18.0.12")}))
	require.Equal(t, Reason(bpfDropReasonDROP_NO_ENDPOINT), n.tracesNothing(ofService(ack)).Drop)
	require.NoError(t, n.Endpoints.Set(EndpointKey{1, addr("198.18.0.12")}, Endpoint{VPCID: 1, Node: c.nodes[1].address}))
	require.True(t, n.tracesNothing(ofService(ack)).Steps[1].Known)
}

func (c *tenants) infrastructureOf(p *pod, address string) {
	p.nic.Infrastructure = addr(address)
	require.NoError(c.t, p.node.NICs.Set(uint32(p.ifindex), p.nic))
	c.endpoint(p.node, EndpointKey{1, addr(address)}, Endpoint{VPCID: p.nic.VPCID, Kind: EndpointInfrastructure, Ifindex: uint32(p.ifindex)})
}

func TestATraceFollowsAPacketToTheOtherNode(t *testing.T) {
	c := newTenants(t)
	v := c.nodes[0].tracesNothing(Packet{Ifindex: c.a1.ifindex, Frame: c.a1.udp(4000, "10.0.2.12:53").frame()})
	require.Equal(t, TargetMember, v.Target)
	require.Equal(t, c.nodes[1].address, v.Member)
	require.EqualValues(t, 1002, v.VNI)
	v = c.nodes[1].tracesNothing(Packet{Member: c.nodes[0].address, VNI: v.VNI, Frame: v.Frame})
	require.Equal(t, TargetInterface, v.Target)
	require.Equal(t, c.a4.ifindex, v.Ifindex)
	require.Equal(t, []StepKind{StepMember, StepMemberSource}, v.kinds())
	v = c.nodes[1].tracesNothing(Packet{Member: addr("192.0.2.99"), VNI: 1002, Frame: v.Frame})
	require.Equal(t, Reason(bpfDropReasonDROP_UNKNOWN_MEMBER), v.Drop)
	require.Zero(t, v.DropIfindex)
	require.Empty(t, v.Frame)
}

func TestATraceOfAnInterfaceThatIsGoneSaysSo(t *testing.T) {
	c := newTenants(t)
	_, err := c.nodes[0].tracer.Trace(Packet{Ifindex: 999, Frame: c.a1.udp(4000, "10.0.2.12:53").frame()})
	require.ErrorContains(t, err, "interface 999 is not in the node's network namespace")
}

// The tracer finds the programs and constants that are attached, in either way.
func TestATracerIsOfWhatIsAttached(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		n := r.nodes[0]
		var v Verdict
		require.NoError(t, n.Do(func() error {
			tracer, err := OpenTracer(n.config.PinPath)
			if err != nil {
				return err
			}
			s := segment{
				sourceMAC: r.a1.nic.MAC, destinationMAC: r.a1.nic.GatewayMAC, size: 32,
				source: addrPortOf("10.0.1.11:4000"), destination: addrPortOf("10.0.1.12:8080"), tcp: &layers.TCP{SYN: true},
			}
			v, err = tracer.Trace(Packet{Ifindex: r.a1.ifindex(), Frame: s.frame()})
			return errors.Join(err, tracer.Close())
		}))
		require.Equal(t, TargetMember, v.Target)
		require.Equal(t, r.nodes[1].Address, v.Member)
		require.Equal(t, n.config.VXLANIfindex, v.Ifindex, "a constant of the attached program")
		require.EqualValues(t, 1001, v.VNI)
		// In a namespace where nothing is attached there is nothing to trace, unless pins tell of the links.
		if n.Mode() == ModeClsact {
			require.ErrorIs(t, r.net.Outside.Do(func() error {
				_, err := OpenTracer(n.config.PinPath)
				return err
			}), errNotAttached)
		}
	})
}

func TestFillCountsEveryKindOfMap(t *testing.T) {
	c := newTenants(t)
	n := c.nodes[0]
	c.a1.setPolicies(policy(Rule{Peers: from("10.0.1.0/24")}), nil)
	c.service(TCP, "198.19.0.10:80", 0, "198.18.0.12:8080")
	c.web1.sends(c.web1.tcp(4000, "198.19.0.10:80", layers.TCP{SYN: true}).frame())
	c.a1.sends(c.a1.udp(4000, "10.9.9.9:1").frame()).isDropped(bpfDropReasonDROP_NO_ROUTE)
	endpoints, err := n.Endpoints.List()
	require.NoError(t, err)
	fills, err := n.Fill()
	require.NoError(t, err)
	require.Equal(t, Fill{len(endpoints), 262144}, fills[bpfMapEndpoints])
	require.Equal(t, Fill{2, 1048576}, fills[bpfMapRoutes], "an LPM trie")
	require.Equal(t, Fill{2, 1024}, fills[bpfMapConntracks], "an LRU table")
	require.Equal(t, Fill{1, 65536}, fills[bpfMapDrops], "a table per CPU")
	require.Equal(t, Fill{1, 1048576}, fills[bpfMapPolicyPeers])
	want := slices.Sorted(maps.Keys(n.collection.Maps))
	want = slices.DeleteFunc(want, func(name string) bool {
		return ofOneLoad(name) || name == bpfMapPolicyNumbers
	})
	require.Equal(t, want, slices.Sorted(maps.Keys(fills)))
	for i := range uint32(2 * fillBatch) {
		require.NoError(t, n.Subnets.Set(100_000+i, Subnet{VPCID: 9, Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1")}))
	}
	fills, err = n.Fill()
	require.NoError(t, err)
	require.Equal(t, Fill{4 + 2*fillBatch, 16384}, fills[bpfMapSubnets], "several batches")
}

func TestDeliveriesAreCountedAtTheReceiver(t *testing.T) {
	c := newTenants(t)
	n := c.nodes[1]
	frame := c.a1.udp(4000, "10.0.1.12:53").frame()
	for range 3 {
		c.a1.sends(frame).then().reaches(c.a2)
	}
	counts, err := n.Deliveries.List()
	require.NoError(t, err)
	require.Equal(t, map[int]Count{c.a2.ifindex: {3, 3 * uint64(len(frame))}}, counts)
	require.NoError(t, n.Deliveries.DeleteInterface(c.a2.ifindex))
	require.NoError(t, n.Deliveries.DeleteInterface(c.a2.ifindex), "twice")
	counts, err = n.Deliveries.List()
	require.NoError(t, err)
	require.Empty(t, counts)
}
