package inspect

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/datapath"
	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// eachMode runs a test with tcx, where the kernel has it, and with clsact.
func eachMode(t *testing.T, test func(t *testing.T, w *world)) {
	for _, mode := range []datapath.Mode{datapath.ModeTCX, datapath.ModeClsact} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t, mode == datapath.ModeClsact)
			if w.nodes[0].Mode() != mode {
				t.Skip("this kernel has no tcx (Linux 6.6)")
			}
			test(t, w)
		})
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func (w *world) trace(from, to string, port uint16) *Trace {
	w.t.Helper()
	protocol := "tcp"
	if port == 0 {
		protocol = "icmp"
	}
	trace, err := w.Trace(Request{From: from, To: addr(to), Port: port, Protocol: protocol, SourcePort: DefaultSourcePort})
	require.NoError(w.t, err)
	return trace
}

func (t *Trace) texts() (texts []string) {
	for _, s := range t.Steps {
		texts = append(texts, s.Node+" "+s.Step+": "+s.Text)
	}
	return texts
}

func TestATraceTellsTheWholeWay(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		trace := w.trace("team/web", "10.0.2.12", 8080)
		require.Equal(t, []string{
			"node-1 packet: team/web sends TCP 10.0.1.11:61923 > 10.0.2.12:8080",
			"node-1 source: source 10.0.1.11 and its MAC address are the interface's own, in VPC red",
			"node-1 subnet: a route leads 10.0.2.12 to Subnet back (VNI 1002)",
			"node-1 endpoint: the destination is an interface on node-2",
			"node-1 tunnel: goes by VXLAN, VNI 1002 (Subnet back), to node-2 (192.0.2.2)",
			"node-2 member: VXLAN from node-1 is accepted: it is a member",
			"node-2 member-source: source 10.0.1.11 is at the node that sent it",
			"node-2 deliver: delivered to team/db as TCP 10.0.1.11:61923 > 10.0.2.12:8080",
		}, trace.texts())
		require.Equal(t, VerdictDelivered, trace.Verdict)
		require.Equal(t, "vxlan_ingress", trace.Steps[5].Program)

		// The same addresses of another VPC lead nowhere, by whatever name the sender is known.
		for _, from := range []string{"team/other", "10.0.1.11@blue", "10.0.1.11@#8"} {
			trace = w.trace(from, "10.0.2.12", 8080)
			require.Equal(t, VerdictDropped, trace.Verdict)
			require.Equal(t, "no_route", trace.Reason)
			require.NotEmpty(t, trace.Meaning)
			require.NotEmpty(t, trace.Remedy)
		}
		require.Equal(t, VerdictAnswered, w.trace("team/web", "10.0.1.1", 0).Verdict)

		// What the trace says is what happens.
		answer, err := w.web.Ask("tcp", "10.0.2.12:8080", testnet.Timeout)
		require.NoError(t, err)
		require.Contains(t, answer, "db")
		_, err = w.other.Ask("tcp", "10.0.2.12:8080", testnet.ShortTimeout)
		require.Error(t, err)
	})
}

func TestATraceFollowsExternalAddressesInAndOut(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			e := datapath.External{Kind: datapath.ExternalFloating, VPCID: 7, Target: datapath.EndpointKey{VNI: 1002, Address: addr("10.0.2.12")}, Node: w.db.node.Address}
			if n == w.db.node {
				e.Node = netip.Addr{}
			}
			require.NoError(t, n.Externals.Set(netip.MustParsePrefix("203.0.113.5/32"), e))
			require.NoError(t, n.Externals.Set(netip.MustParsePrefix("203.0.113.0/24"), datapath.External{}))
			require.NoError(t, n.Floatings.Set(datapath.FloatingKey{VPCID: 7, Address: addr("10.0.2.12")}, datapath.Floating{External: addr("203.0.113.5")}))
			require.NoError(t, n.Routes.Set(datapath.RouteKey{VNI: 1002, Prefix: netip.MustParsePrefix("0.0.0.0/0")}, datapath.Route{Kind: datapath.RouteOutside}))
		}
		trace := w.trace("outside/198.51.100.9", "203.0.113.5", 8080)
		require.Equal(t, []string{
			"node-1 packet: outside/198.51.100.9 sends TCP 198.51.100.9:61923 > 203.0.113.5:8080",
			"node-1 tunnel: goes by VXLAN, VNI 2 (what is for external addresses), to node-2 (192.0.2.2)",
			"node-2 member: VXLAN from node-1 is accepted: it is a member",
			"node-2 external-address: an external address: 10.0.2.12 in Subnet back (VNI 1002) has it",
			"node-2 deliver: delivered to team/db as TCP 198.51.100.9:61923 > 10.0.2.12:8080",
		}, trace.texts())
		require.Equal(t, VerdictDelivered, trace.Verdict)
		trace = w.trace("team/db", "198.51.100.9", 80)
		require.Equal(t, []string{
			"node-2 packet: team/db sends TCP 10.0.2.12:61923 > 198.51.100.9:80",
			"node-2 source: source 10.0.2.12 and its MAC address are the interface's own, in VPC red",
			"node-2 floating-ip: it leaves VPC red from the sender's FloatingIP 203.0.113.5",
			"node-2 outside: leaves the cloud at node-2 as TCP 203.0.113.5:61923 > 198.51.100.9:80",
		}, trace.texts())
		require.Equal(t, VerdictOutside, trace.Verdict)
		require.Equal(t, "external_free", w.trace("outside/198.51.100.9", "203.0.113.6", 80).Reason)
		require.Equal(t, VerdictHost, w.trace("outside/198.51.100.9", "192.0.2.1", 22).Verdict)
		_, err := w.Trace(Request{From: "outside/nobody", To: addr("203.0.113.5"), Protocol: "icmp"})
		require.ErrorContains(t, err, `"nobody" is not an IPv4 address`)
		routes, err := w.Routes("node-2", "back", false)
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(routes, func(r Route) bool { return r.Kind == RouteOutside && r.Prefix == "0.0.0.0/0" }))
	})
}

func TestATraceNamesThePolicyThatDecides(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		w.cache.police(t, datapath.Policy{Rules: []datapath.Rule{{
			Peers: []datapath.Peer{{Prefix: netip.MustParsePrefix("10.0.1.11/32")}}, Ports: []datapath.Ports{{Protocol: datapath.TCP, First: 8080, Last: 8080}},
		}}})
		trace := w.trace("team/web", "10.0.1.13", 8080)
		require.Contains(t, trace.texts(), "node-1 ingress-policy: a rule of the ingress policy of team/cache (SecurityGroups group-of-cache) admits what is let in from 10.0.1.11")
		require.Equal(t, VerdictDelivered, trace.Verdict)
		trace = w.trace("team/web", "10.0.1.13", 22)
		require.Contains(t, trace.texts(), "node-1 ingress-policy: no rule of the ingress policy of team/cache (SecurityGroups group-of-cache) admits what is let in from 10.0.1.11")
		require.Equal(t, "policy_ingress", trace.Reason)

		// A trace leaves no flow behind; a packet does.
		flows, err := w.Connections(Filter{}, netip.Addr{})
		require.NoError(t, err)
		require.Empty(t, flows)
		_, err = w.web.Ask("tcp", "10.0.1.13:8080", testnet.Timeout)
		require.NoError(t, err)
		flows, err = w.Connections(Filter{VPC: "red", Namespace: "team", Pod: "cache"}, addr("10.0.1.11"))
		require.NoError(t, err)
		require.Len(t, flows, 1)
		require.Equal(t, KindPolicy, flows[0].Kind)
		require.Equal(t, "tcp", flows[0].Protocol)
		require.Equal(t, "10.0.1.13:8080", flows[0].Destination)
		require.Contains(t, []string{"established", "closing"}, flows[0].State)
		require.Less(t, flows[0].AgeSeconds, int64(60))
		for _, none := range []Filter{{VPC: "blue"}, {Namespace: "nobody"}, {Pod: "web"}, {Node: "node-2"}} {
			flows, err = w.Connections(none, netip.Addr{})
			require.NoError(t, err)
			require.Empty(t, flows, "%+v", none)
		}
	})
}

func TestServicesAndHostsAreTracedAndTheirConnectionsListed(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		n := w.nodes[0]
		key := datapath.ServiceKey{VPCID: 7, Address: addr("198.19.0.10"), Port: 80, Protocol: datapath.TCP}
		_, err := n.Services.Sync(map[datapath.ServiceKey]datapath.Service{
			key: {Backends: []datapath.Backend{{Address: addr("10.0.2.12"), Port: 8080}}},
		})
		require.NoError(t, err)
		trace := w.trace("team/web", "198.19.0.10", 80)
		require.Contains(t, trace.texts(), "node-1 service: a Service: it goes to the backend 10.0.2.12:8080")
		require.Equal(t, VerdictDelivered, trace.Verdict)
		trace = w.trace("team/web", "198.19.0.11", 80)
		require.Equal(t, "unknown_service", trace.Reason)
		require.Contains(t, trace.Told, "Unreachable")
		_, err = w.web.Ask("tcp", "198.19.0.10:80", testnet.Timeout)
		require.NoError(t, err)
		flows, err := w.Connections(Filter{}, addr("10.0.2.12"))
		require.NoError(t, err)
		require.Len(t, flows, 1)
		require.Equal(t, KindService, flows[0].Kind)
		require.Equal(t, "team/web", flows[0].Name())
		require.Equal(t, "10.0.2.12:8080", flows[0].Translated)

		// A node opens a connection to an infrastructure address.
		w.web.nic.Infrastructure = addr("198.18.0.51")
		w.web.set()
		require.NoError(t, n.Endpoints.Set(datapath.EndpointKey{VNI: 1, Address: addr("198.18.0.51")},
			datapath.Endpoint{VPCID: 7, Kind: datapath.EndpointInfrastructure, Ifindex: uint32(w.web.HostLink.Attrs().Index)}))
		trace = w.trace("node/node-1", "198.18.0.51", 8080)
		require.Equal(t, "host_egress", trace.Steps[0].Program)
		require.Contains(t, trace.texts(), "node-1 infrastructure-address: an infrastructure address: it is 10.0.1.11 in VPC red")
		require.Equal(t, VerdictDelivered, trace.Verdict)
		_, err = n.Ask("tcp", "198.18.0.51:8080", testnet.Timeout)
		require.NoError(t, err)
		flows, err = w.Connections(Filter{}, addr("198.18.0.51"))
		require.NoError(t, err)
		require.Len(t, flows, 1)
		require.Equal(t, KindInfrastructure, flows[0].Kind)
		require.Equal(t, "10.0.1.11:8080", flows[0].Translated)
	})
}

func TestStatusDropsAndRoutes(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		_, err := w.web.Ask("tcp", "10.0.2.12:8080", testnet.Timeout)
		require.NoError(t, err)
		_, err = w.web.Ask("udp", "10.9.9.9:1", testnet.ShortTimeout)
		require.Error(t, err)
		s := w.Status()
		require.Len(t, s.Nodes, 2)
		one := s.Nodes[0]
		require.Empty(t, one.Error)
		require.Equal(t, "192.0.2.1", one.Address)
		require.Equal(t, string(w.nodes[0].Mode()), one.Attached)
		require.NotEmpty(t, one.Programs)
		require.Equal(t, one.Programs, s.Nodes[1].Programs)
		require.Equal(t, 3, one.Interfaces)
		require.Equal(t, 1, one.Members)
		require.Positive(t, one.DeliveredPackets)
		require.Positive(t, one.UnexpectedPackets)
		i := slices.IndexFunc(one.Maps, func(m MapStatus) bool { return m.Map == "nics" })
		require.Equal(t, MapStatus{Map: "nics", Entries: 3, Max: 16384}, one.Maps[i])
		require.Equal(t, []VPCStatus{{"blue", 8, 1, 1}, {"default", 1, 0, 0}, {"red", 7, 2, 3}}, s.VPCs)

		drops, err := w.Drops(Filter{VPC: "red", Pod: "web"})
		require.NoError(t, err)
		i = slices.IndexFunc(drops, func(d Drop) bool { return d.Reason == "no_route" })
		require.GreaterOrEqual(t, i, 0, "%+v", drops)
		d := drops[i]
		require.Equal(t, Owner{"node-1", "red", "front", "nic-web", "team", "web", "10.0.1.11"}, d.Owner)
		require.Positive(t, d.Packets)
		require.NotEmpty(t, d.Remedy)
		none, err := w.Drops(Filter{VPC: "blue", Namespace: "nobody"})
		require.NoError(t, err)
		require.Empty(t, none)

		routes, err := w.Routes("node-1", "front", true)
		require.NoError(t, err)
		var rows []string
		for _, r := range routes {
			rows = append(rows, r.Kind+" "+r.Prefix+" "+r.NextHop+" "+r.At)
		}
		slices.Sort(rows)
		require.Equal(t, []string{
			"endpoint 10.0.1.11/32 team/web node-1", "endpoint 10.0.1.13/32 team/cache node-1",
			"route 10.0.2.0/24 subnet back ", "subnet 10.0.1.0/24 direct ",
		}, rows)
		routes, err = w.Routes("", "", false)
		require.NoError(t, err)
		require.Len(t, routes, 2*(3+2), "on both nodes: three Subnets, two routes")
	})
}

func TestWrongNamesAreToldWithThoseThereAre(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		for _, c := range []struct{ from, want string }{
			{"team/nobody", "no Pod \"team/nobody\" with an interface; namespace team has: team/cache, team/db, team/other, team/web"},
			{"nowhere/web", "no Pod of namespace \"nowhere\" has an interface; there are: team/cache"},
			{"10.0.1.11@green", "no VPC \"green\"; there are: blue, default, red"},
			{"10.0.1.99@red", "no node of this machine has the interface of 10.0.1.99@red"},
			{"x@red", `"x" is not an IPv4 address`},
			{"node/node-9", `no node "node-9" on this machine; there are: node-1, node-2`},
			{"web", `"web" is not NAMESPACE/POD, ADDRESS@VPC, node/NAME or outside/ADDRESS`},
		} {
			_, err := w.Trace(Request{From: c.from, To: addr("10.0.1.13"), Protocol: "icmp"})
			require.ErrorContains(t, err, c.want)
		}
		_, err := w.Drops(Filter{VPC: "green"})
		require.ErrorContains(t, err, "there are: blue, default, red")
		_, err = w.Connections(Filter{Node: "node-9"}, netip.Addr{})
		require.ErrorContains(t, err, "there are: node-1, node-2")
		_, err = w.Routes("", "green", false)
		require.ErrorContains(t, err, "Subnets: back, blue, front")

		// Without an API numbers stand for names, and a node that is gone does not hide the other.
		w.Objects = &Objects{}
		w.Members[1].PinPath = "/nonexistent"
		s := w.Status()
		require.Contains(t, s.Nodes[1].Error, "is its mni-netd running?")
		require.Equal(t, 3, s.Nodes[0].Interfaces)
		routes, err := w.Routes("node-1", "", false)
		require.NoError(t, err)
		require.Equal(t, "#7", routes[0].VPC)
		_, err = w.Trace(Request{From: "10.0.1.11@#7", To: addr("10.0.1.13"), Protocol: "icmp"})
		require.NoError(t, err)
	})
}
