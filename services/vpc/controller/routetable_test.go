package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

func (w *tenant) newTable(name, vpc string, routes ...vpcv1.Route) *vpcv1.RouteTable {
	return &vpcv1.RouteTable{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: vpcv1.RouteTableSpec{VPC: vpc, Routes: routes}}
}

func (w *tenant) table(name, vpc string, routes ...vpcv1.Route) *vpcv1.RouteTable {
	w.t.Helper()
	table := w.newTable(name, vpc, routes...)
	require.NoError(w.t, w.Create(w.ctx, table))
	return table
}

// names makes a Subnet name a RouteTable.
func (w *tenant) names(subnet *vpcv1.Subnet, table string) {
	w.t.Helper()
	require.NoError(w.t, w.Patch(w.ctx, subnet, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"routeTable":"`+table+`"}}`))))
}

// containerIn makes the interface of a Container, as its service does.
func (w *tenant) containerIn(subnet *vpcv1.Subnet, name string, check bool) *netv1.NetworkInterface {
	w.t.Helper()
	nic := &netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "uid-", Annotations: map[string]string{netv1.AnnotationHolder: "Container " + name},
			Labels: map[string]string{ctrv1.LabelNamespace: w.namespace, ctrv1.LabelContainer: name},
		},
		Spec: netv1.NetworkInterfaceSpec{Subnet: string(subnet.UID), Namespace: w.namespace, Retain: true, SourceDestCheck: &check},
	}
	require.NoError(w.t, w.Create(w.ctx, nic))
	until(w, "the interface has an address", nic, func(n *netv1.NetworkInterface) bool { return n.Status.Address != "" })
	return nic
}

func toContainer(destination, name string) vpcv1.Route {
	return vpcv1.Route{Destination: destination, Container: &name}
}

// madeOf is what was made for a tenant's RouteTable.
func (w *tenant) madeOf(table *vpcv1.RouteTable) *netv1.RouteTable {
	w.t.Helper()
	made := &netv1.RouteTable{}
	require.NoError(w.t, w.Get(w.ctx, client.ObjectKey{Name: string(table.UID)}, made))
	return made
}

func TestARouteTableWaitsForItsContainerAndFollowsIt(t *testing.T) {
	w, other := newTenant(t), newTenant(t)
	startControllers(t)
	table := w.table("inspected", "main", toContainer("172.16.0.0/12", "firewall"), vpcv1.Route{Destination: "10.9.0.0/16", Blackhole: ptr.To(true)})
	require.Contains(t, w.untilReason(table, "VpcNotFound"), `spec.vpc names Vpc "main", which does not exist in this namespace`)
	require.Empty(t, table.Finalizers)
	vpc := w.vpc("main", "10.0.0.0/16")
	subnet := w.subnet("front", "main", "10.0.1.0/24")
	w.untilReady(subnet)
	other.vpc("main", "10.0.0.0/16")
	foreign := other.subnet("front", "main", "10.0.1.0/24")
	other.untilReady(foreign)
	other.containerIn(foreign, "firewall", false)
	require.Equal(t, "spec.routes[0]: the route to 172.16.0.0/12 drops: Container firewall does not exist; create it, or name another",
		w.untilReason(table, netv1.ReasonRouteTarget))
	require.Equal(t, status.Pending, table.Status.Phase)
	require.Equal(t, string(vpc.UID), w.madeOf(table).Spec.VPC)
	require.Len(t, w.madeOf(table).Spec.Routes, 2, "a route whose target is not there drops; it is not left out")

	closed := w.containerIn(subnet, "firewall", true)
	until(w, "it says what the Container lacks", table, func(o *vpcv1.RouteTable) bool {
		return readyOf(o).Message == "spec.routes[0]: the route to 172.16.0.0/12 drops: Container firewall sends nothing on; set its spec.sourceDestCheck to false"
	})
	require.NoError(t, w.Delete(w.ctx, closed))
	firewall := w.containerIn(subnet, "firewall", false)
	w.untilReady(table)
	require.Equal(t, []netv1.Route{{Destination: "172.16.0.0/12", Interface: &firewall.Name}, {Destination: "10.9.0.0/16", Blackhole: ptr.To(true)}}, w.madeOf(table).Spec.Routes)

	// An address is whoever's has it.
	table.Spec.Routes = []vpcv1.Route{{Destination: "0.0.0.0/0", Address: &firewall.Status.Address}}
	require.NoError(t, w.Update(w.ctx, table))
	w.untilReady(table)
	require.NoError(t, w.Delete(w.ctx, firewall))
	require.Contains(t, w.untilReason(table, netv1.ReasonRouteTarget), "nothing in the VPC has the address "+firewall.Status.Address)
}

func TestARouteThatLeadsInACircleIsToldInTheTenantsWords(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.vpc("main", "10.0.0.0/16")
	front := w.subnet("front", "main", "10.0.1.0/24")
	table := w.table("out", "main", toContainer("172.16.0.0/12", "firewall"))
	w.untilReady(front)
	w.containerIn(front, "firewall", false)
	w.untilReady(table)
	loops := func(o *vpcv1.RouteTable) string {
		if c := meta.FindStatusCondition(o.Status.Conditions, vpcv1.ConditionRoutesLoop); c != nil {
			return c.Message
		}
		return ""
	}
	require.Empty(t, loops(table))
	w.names(front, "out")
	until(w, "it tells of the circle", table, func(o *vpcv1.RouteTable) bool {
		return loops(o) == "spec.routes[0]: what Container firewall sends on to 172.16.0.0/12 comes back to it by the routes of its own Subnet, and drops; "+
			"let that Subnet name a RouteTable that leads elsewhere, unless the workload is where the range ends"
	})
	w.names(front, "")
	until(w, "there is none any more", table, func(o *vpcv1.RouteTable) bool { return loops(o) == "" })
}

func TestRoutesThatCannotBeAreToldWithTheRemedy(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.vpc("main", "10.0.0.0/16")
	w.vpc("second", "10.0.0.0/16")
	there := w.subnet("there", "second", "10.0.1.0/24")
	w.untilReady(there)
	w.containerIn(there, "firewall", false)
	elsewhere := w.table("elsewhere", "main", toContainer("172.16.0.0/12", "firewall"))
	require.Contains(t, w.untilReason(elsewhere, "RouteInvalid"), "Container firewall is in another VPC; name one in this")
	outside := w.table("outside", "main", vpcv1.Route{Destination: "172.16.0.0/12", Address: ptr.To("10.1.0.7")})
	require.Contains(t, w.untilReason(outside, "RouteInvalid"), `spec.routes[0].address 10.1.0.7 is not in 10.0.0.0/16, the range of Vpc "main"`)
	require.Equal(t, status.Error, outside.Status.Phase)

	front := w.subnet("front", "main", "10.0.1.0/24")
	w.untilReady(front)
	w.names(front, "later")
	require.Contains(t, w.untilReason(front, "RouteTableNotFound"), `spec.routeTable names RouteTable "later", which does not exist in this namespace; create it`)
	w.names(there, "outside")
	require.Contains(t, w.untilReason(there, "RouteTableOfOtherVpc"), `RouteTable "outside", which is of Vpc "main"; name one of Vpc "second"`)
	w.table("later", "main")
	w.untilReady(front)
}

func TestASubnetsTableIsProjectedByUID(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.vpc("main", "10.0.0.0/16")
	front := w.subnet("front", "main", "10.0.1.0/24")
	table := w.table("inspected", "main")
	w.untilReady(front, table)
	made := named(&netv1.Subnet{}, string(front.UID))
	counts := func(uid string) {
		t.Helper()
		until(w, "its table is "+uid, made, func(s *netv1.Subnet) bool { return s.Spec.RouteTable == uid })
	}
	w.names(front, "inspected")
	counts(string(table.UID))
	w.untilReady(front)
	w.names(front, "")
	counts("")
}

func TestARouteTableStaysWhileASubnetNamesItAndAVpcWhileItHasTables(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	vpc := w.vpc("main", "10.0.0.0/16")
	front := w.subnet("front", "main", "10.0.1.0/24")
	table := w.table("inspected", "main", vpcv1.Route{Destination: "0.0.0.0/0", Blackhole: ptr.To(true)})
	w.names(front, "inspected")
	w.untilReady(front, table)
	require.NoError(t, w.Delete(w.ctx, table))
	require.Equal(t, "the RouteTable goes when no Subnet names it in spec.routeTable any more: front", w.untilReason(table, "InUse"))
	require.Len(t, w.madeOf(table).Spec.Routes, 1, "its routes count until then")
	w.names(front, "")
	w.untilGone(table)
	require.False(t, w.read(named(&netv1.RouteTable{}, string(table.UID))))

	second := w.table("second", "main")
	w.untilReady(second)
	require.NoError(t, w.Delete(w.ctx, front))
	w.untilGone(front)
	require.NoError(t, w.Delete(w.ctx, vpc))
	require.Equal(t, "the Vpc goes when its RouteTables are deleted: second", w.untilReason(vpc, "HasRouteTables"))
	late := w.table("late", "main")
	require.Contains(t, w.untilReason(late, "VpcDeleting"), "delete this RouteTable too")
	require.NoError(t, w.Delete(w.ctx, second))
	w.untilGone(vpc)
	w.untilReason(late, "VpcNotFound")
}

func TestVpcSubnetTableAndTargetGoInAnyOrder(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}} {
		vpc, subnet := w.vpc("main", "10.0.0.0/16"), w.subnet("front", "main", "10.0.1.0/24")
		w.untilReady(subnet)
		nic := w.containerIn(subnet, "firewall", false)
		table := w.table("inspected", "main", toContainer("0.0.0.0/0", "firewall"))
		w.names(subnet, "inspected")
		w.untilReady(subnet, table)
		all := []client.Object{vpc, subnet, table, nic}
		for _, i := range order {
			require.NoError(t, w.Delete(w.ctx, all[i]))
		}
		for _, o := range all {
			w.untilGone(o)
		}
		require.False(t, w.read(named(&netv1.RouteTable{}, string(table.UID))), "%v", order)
	}
}

func TestTheAPIServerRefusesRoutesThatCannotBe(t *testing.T) {
	w := newTenant(t)
	yes := ptr.To(true)
	for name, tc := range map[string]struct {
		route vpcv1.Route
		says  string
	}{
		"no target":          {vpcv1.Route{Destination: "10.9.0.0/16"}, "set exactly one of container, address, internet, natGateway and blackhole"},
		"two targets":        {vpcv1.Route{Destination: "10.9.0.0/16", Container: ptr.To("a"), Blackhole: yes}, "set exactly one of container, address, internet, natGateway and blackhole"},
		"no blackhole":       {vpcv1.Route{Destination: "10.9.0.0/16", Blackhole: ptr.To(false)}, "blackhole must be true"},
		"no range":           {vpcv1.Route{Destination: "10.9.0.0", Blackhole: yes}, "destination must be an address range such as 10.9.0.0/16"},
		"not canonical":      {vpcv1.Route{Destination: "10.9.0.5/16", Blackhole: yes}, "destination must be canonical"},
		"IPv6":               {vpcv1.Route{Destination: "fd00::/8", Blackhole: yes}, "destination must be IPv4"},
		"infrastructure":     {vpcv1.Route{Destination: "198.18.0.0/16", Container: ptr.To("a")}, "destination is in a reserved range"},
		"a Service":          {vpcv1.Route{Destination: "198.19.0.10/32", Container: ptr.To("a")}, "destination is in a reserved range"},
		"underlay":           {vpcv1.Route{Destination: "192.0.2.0/24", Container: ptr.To("a")}, "destination is in a reserved range"},
		"aliases":            {vpcv1.Route{Destination: "169.254.64.0/18", Container: ptr.To("a")}, "destination is in a reserved range"},
		"loopback":           {vpcv1.Route{Destination: "127.0.0.0/8", Blackhole: yes}, "destination is in a reserved range"},
		"multicast":          {vpcv1.Route{Destination: "224.0.0.0/24", Container: ptr.To("a")}, "destination is in a reserved range"},
		"leads to itself":    {vpcv1.Route{Destination: "10.0.1.7/32", Address: ptr.To("10.0.1.7")}, "the route leads to address by address itself"},
		"IPv6 target":        {vpcv1.Route{Destination: "10.9.0.0/16", Address: ptr.To("fd00::1")}, "address must be an IPv4 address"},
		"no address":         {vpcv1.Route{Destination: "10.9.0.0/16", Address: ptr.To("10.0.1")}, "address must be an IPv4 address"},
		"another's gateway":  {vpcv1.Route{Destination: "0.0.0.0/0", NATGateway: ptr.To("blue/nat")}, "natGateway must be the name of a NATGateway of the same tenant"},
		"gateway and more":   {vpcv1.Route{Destination: "0.0.0.0/0", NATGateway: ptr.To("nat"), Internet: yes}, "set exactly one of container, address, internet, natGateway and blackhole"},
		"another namespaces": {vpcv1.Route{Destination: "10.9.0.0/16", Container: ptr.To("blue/firewall")}, "container must be the name of a Container of the same tenant"},
	} {
		t.Run(name, func(t *testing.T) {
			err := w.Create(w.ctx, w.newTable("t", "main", tc.route))
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, tc.says)
			require.ErrorContains(t, err, "spec.routes[0]")
		})
	}
	twice := vpcv1.Route{Destination: "10.9.0.0/16", Blackhole: yes}
	require.ErrorContains(t, w.Create(w.ctx, w.newTable("t", "main", twice, twice)), "spec.routes[1]: Duplicate value")
	require.ErrorContains(t, w.Create(w.ctx, w.newTable("t", "main", vpcv1.Route{Destination: "198.51.100.0/24", NATGateway: ptr.To("a")},
		vpcv1.Route{Destination: "0.0.0.0/0", NATGateway: ptr.To("b")})), "the routes of a table lead to one NATGateway")
	require.ErrorContains(t, w.Create(w.ctx, w.newTable("t", "blue/main")), "vpc must be the name of a Vpc of the same tenant")
	require.ErrorContains(t, w.Create(w.ctx, w.newTable("a.b", "main")), "metadata.name must be at most 63")
	require.ErrorContains(t, w.Create(w.ctx, w.newTable("t", "main", make([]vpcv1.Route, 101)...)), "must have at most 100 items")
	// Everything, and ranges that only contain a reserved one, may be routed.
	table := w.table("t", "main", toContainer("0.0.0.0/0", "a"), toContainer("128.0.0.0/1", "a"), toContainer("10.0.1.7/32", "a"))
	table.Spec.VPC = "second"
	require.ErrorContains(t, w.Update(w.ctx, table), "vpc cannot be changed; make a new RouteTable")
	subnet := w.subnet("s", "main", "10.0.1.0/24")
	subnet.Spec.RouteTable = "blue/t"
	require.ErrorContains(t, w.Update(w.ctx, subnet), "routeTable must be the name of a RouteTable of the same tenant")
}
