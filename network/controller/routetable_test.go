package controller

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/routing"
)

func newTable(name, vpc string, routes ...netv1.Route) *netv1.RouteTable {
	return &netv1.RouteTable{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.RouteTableSpec{VPC: vpc, Routes: routes}}
}

func (w *world) table(name, vpc string, routes ...netv1.Route) *netv1.RouteTable {
	w.t.Helper()
	table := newTable(name, vpc, routes...)
	w.make(table)
	w.t.Cleanup(func() { _ = w.Delete(w.ctx, table) })
	return table
}

// saysOfRoutes waits for the table's Ready condition to have a reason, and returns its message.
func (w *world) saysOfRoutes(table *netv1.RouteTable, reason string) string {
	w.t.Helper()
	var ready *metav1.Condition
	w.eventually("RouteTable "+table.Name+" has reason "+reason, func() bool {
		require.NoError(w.t, w.Get(w.ctx, client.ObjectKeyFromObject(table), table))
		ready = meta.FindStatusCondition(table.Status.Conditions, "Ready")
		return ready != nil && ready.Reason == reason && ready.ObservedGeneration == table.Generation
	})
	return ready.Message
}

func retained(name, subnet, namespace, address string, check bool) *netv1.NetworkInterface {
	return &netv1.NetworkInterface{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.NetworkInterfaceSpec{
		Subnet: subnet, Namespace: namespace, Address: address, Retain: true, SourceDestCheck: &check,
	}}
}

func TestARouteTableWaitsForItsTargetsAndFollowsThem(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	table := w.table("t", "a", netv1.Route{Destination: "172.16.0.0/12", Interface: ptr("firewall")}, netv1.Route{Destination: "10.9.0.0/16", Address: ptr("10.0.1.9")},
		netv1.Route{Destination: "10.8.0.0/16", Blackhole: ptr(true)})
	require.Contains(t, w.saysOfRoutes(table, "WaitingForVPC"), "spec.vpc: VPC a does not exist yet")
	w.network(ns, "a", "10.0.1.0/24")
	w.network(ns, "b", "10.0.1.0/24")
	w.make(retained("elsewhere", "b", ns, "10.0.1.9", false)) // the address, in another VPC
	message := w.saysOfRoutes(table, netv1.ReasonRouteTarget)
	require.Contains(t, message, "spec.routes[0]: the route to 172.16.0.0/12 drops: NetworkInterface firewall does not exist")
	require.Contains(t, message, "spec.routes[1]: the route to 10.9.0.0/16 drops: nothing in the VPC has the address 10.0.1.9")

	firewall := retained("firewall", "a", ns, "", true)
	w.make(firewall, retained("router", "a", ns, "10.0.1.9", false))
	w.eventually("the firewall is said to send nothing on, and the router is found", func() bool {
		return w.saysOfRoutes(table, netv1.ReasonRouteTarget) == "spec.routes[0]: the route to 172.16.0.0/12 drops: NetworkInterface firewall sends nothing on; set its spec.sourceDestCheck to false"
	})
	require.NoError(t, w.Patch(w.ctx, firewall, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"sourceDestCheck":false}}`))))
	w.saysOfRoutes(table, "Ready")
	w.remove(firewall)
	require.Contains(t, w.saysOfRoutes(table, netv1.ReasonRouteTarget), "NetworkInterface firewall does not exist")
	w.make(retained("firewall", "b", ns, "", false))
	require.Contains(t, w.saysOfRoutes(table, "RouteInvalid"), "NetworkInterface firewall is in another VPC")
}

// A route whose target gets back what it sends on is told, by whatever table it becomes one, and ends to be.
func TestARouteTableTellsOfRoutesThatLeadInACircle(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	w.make(newSubnet("a-back", "a", "10.0.2.0/24"))
	w.eventually("the second Subnet is there", func() bool { return w.subnet("a-back").Status.VNI != 0 })
	use := func(subnet, table string) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"routeTable":"`+table+`"}}`))
		require.NoError(t, w.Patch(w.ctx, w.subnet(subnet), patch))
	}
	one, two := retained("one", "a", ns, "10.0.1.9", false), retained("two", "a-back", ns, "10.0.2.9", false)
	w.make(one, two)
	first := w.table("first", "a", netv1.Route{Destination: "172.16.0.0/12", Interface: ptr("two")})
	second := w.table("second", "a", netv1.Route{Destination: "172.16.0.0/12", Address: ptr("10.0.1.9")})
	w.saysOfRoutes(first, "Ready")
	w.saysOfRoutes(second, "Ready")
	loops := func(table *netv1.RouteTable, nic string) {
		t.Helper()
		w.eventually(table.Name+" tells of a circle over "+nic, func() bool {
			require.NoError(t, w.Get(w.ctx, client.ObjectKeyFromObject(table), table))
			c := meta.FindStatusCondition(table.Status.Conditions, netv1.ConditionRoutesLoop)
			require.True(t, conditions.IsReady(table.Status.Conditions, table.Generation), "every route leads to what it names all the same")
			if nic == "" {
				return c == nil
			}
			return c != nil && c.Status == metav1.ConditionTrue &&
				strings.HasPrefix(c.Message, "spec.routes[0]: what NetworkInterface "+nic+" sends on to 172.16.0.0/12 comes back to it by the routes of its own Subnet, and drops; let that Subnet name")
		})
	}
	use("a-back", "first") // two gets back what it sends on
	loops(first, "two")
	use("a", "first") // one would get it, too; but nothing leads to one
	loops(second, "")
	use("a-back", "second") // from one to two and back
	loops(first, "two")
	loops(second, "one")
	base := second.DeepCopy()
	second.Spec.Routes[0].Destination = "172.16.0.0/16"
	require.NoError(t, w.Patch(w.ctx, second, client.MergeFrom(base)))
	loops(first, "")
	base = second.DeepCopy()
	second.Spec.Routes[0].Destination = "172.16.0.0/12"
	require.NoError(t, w.Patch(w.ctx, second, client.MergeFrom(base)))
	loops(first, "two")
	use("a", "")
	loops(first, "")
	loops(second, "")
}

func TestASubnetSaysWhetherItsRouteTableCounts(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	w.network(ns, "b", "10.0.1.0/24")
	name := func(table string) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"routeTable":"`+table+`"}}`))
		require.NoError(t, w.Patch(w.ctx, w.subnet("a"), patch))
	}
	known := func(status metav1.ConditionStatus, says string) {
		t.Helper()
		w.eventually("the Subnet says "+says, func() bool {
			s := w.subnet("a")
			c := meta.FindStatusCondition(s.Status.Conditions, netv1.ConditionRouteTableKnown)
			require.True(t, conditions.IsReady(s.Status.Conditions, s.Status.ObservedGeneration), "it is in use whatever its table")
			return c != nil && c.Status == status && c.Message == says
		})
	}
	name("t")
	known(metav1.ConditionFalse, "spec.routeTable: RouteTable t does not exist; create it, or name another")
	table := w.table("t", "a")
	known(metav1.ConditionTrue, "the table's routes count")
	w.remove(table)
	known(metav1.ConditionFalse, "spec.routeTable: RouteTable t does not exist; create it, or name another")
	w.table("other", "b")
	name("other")
	known(metav1.ConditionFalse, "spec.routeTable: RouteTable other is of VPC b, the Subnet is in a; name one of the same VPC")
	name("")
	w.eventually("it says nothing of tables", func() bool {
		return meta.FindStatusCondition(w.subnet("a").Status.Conditions, netv1.ConditionRouteTableKnown) == nil
	})
}

func TestRoutesThatMakeNoSenseAreRefused(t *testing.T) {
	w := idleWorld(t)
	target, address, yes, no := ptr("firewall"), ptr("10.0.1.7"), ptr(true), ptr(false)
	for message, route := range map[string]netv1.Route{
		"exactly one of interface, address, internet, natGateway and blackhole": {Destination: "10.9.0.0/16"},
		"set exactly one of":            {Destination: "10.9.0.0/16", Interface: target, Blackhole: yes},
		"blackhole must be true":        {Destination: "10.9.0.0/16", Blackhole: no},
		"must be an address range":      {Destination: "everywhere", Blackhole: yes},
		"must be canonical":             {Destination: "10.9.0.5/16", Blackhole: yes},
		"IPv6 is not supported":         {Destination: "fd00::/8", Blackhole: yes},
		"address must be an IPv4":       {Destination: "10.9.0.0/16", Address: ptr("fd00::1")},
		"IPv4 address such as 10.0.1.7": {Destination: "10.9.0.0/16", Address: ptr("10.0.1.300")},
		"by address itself":             {Destination: "10.0.1.7/32", Address: address},
	} {
		require.ErrorContains(t, w.Create(w.ctx, newTable("t", "a", route)), message)
	}
	route := netv1.Route{Destination: "10.9.0.0/16", Blackhole: yes}
	require.ErrorContains(t, w.Create(w.ctx, newTable("t", "a", route, route)), "each destination may stand only once")
	require.ErrorContains(t, w.Create(w.ctx, newTable("t", "default", route)), "the default VPC has no route tables")
	require.ErrorContains(t, w.Create(w.ctx, newTable("t", "a", make([]netv1.Route, 101)...)), "must have at most 100 items")
	w.table("t", "a", netv1.Route{Destination: "0.0.0.0/0", Address: address}, netv1.Route{Destination: "10.0.1.0/24", Address: address})
	table := newTable("t", "b")
	require.NoError(t, w.Get(w.ctx, client.ObjectKeyFromObject(table), table))
	table.Spec.VPC = "b"
	require.ErrorContains(t, w.Update(w.ctx, table), "vpc cannot be changed; make a new RouteTable")
	nic := retained("nic", netv1.DefaultSubnet, "a", "", false)
	require.ErrorContains(t, w.Create(w.ctx, nic), "sourceDestCheck cannot be false in the default Subnet")
}

func TestOfManyProblemsThoseComeFirstThatOnlyAChangeHelps(t *testing.T) {
	result := resultOfRoutes([]routing.Problem{{Message: "a"}, {Message: "b"}, {Final: true, Message: "c"}, {Message: "d"}})
	require.Equal(t, conditions.Failed("RouteInvalid", "c; a; b; and 1 more routes"), result)
}
