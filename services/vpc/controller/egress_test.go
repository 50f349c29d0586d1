package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

func byGateway(destination, name string) vpcv1.Route {
	return vpcv1.Route{Destination: destination, NATGateway: &name}
}

// serves waits until a NATGateway serves the Subnets, and no others.
func serves(w *tenant, nat *vpcv1.NATGateway, subnets ...string) {
	w.t.Helper()
	until(w, "it serves what it should", nat, func(o *vpcv1.NATGateway) bool {
		if len(o.Status.Subnets) != len(subnets) {
			return false
		}
		for i := range subnets {
			if o.Status.Subnets[i] != subnets[i] {
				return false
			}
		}
		return true
	})
}

func TestASubnetGoesOutByTheNATGatewayThatItsRouteTableLeadsToAndByNoOther(t *testing.T) {
	w, other := newTenant(t), newTenant(t)
	startControllers(t)
	w.pool("default", "203.0.113.0/28")
	w.vpc("main", "10.0.0.0/16")
	app, db := w.subnet("app", "main", "10.0.1.0/24"), w.subnet("db", "main", "10.0.2.0/24")
	w.untilReady(app, db, w.externalIP("one", "", ""), w.externalIP("two", "", ""))
	whole := w.gateway("whole", "main", []string{"one"})
	w.untilReady(whole)
	serves(w, whole, "app", "db")

	table := w.table("egress", "main", byGateway("0.0.0.0/0", "audited"), vpcv1.Route{Destination: "10.9.0.0/16", Blackhole: ptr.To(true)})
	other.gateway("audited", "main", []string{"one"}) // another tenant's of that name
	require.Equal(t, "spec.routes[0]: the route to 0.0.0.0/0 drops: NATGateway audited does not exist; create it, or name another",
		w.untilReason(table, netv1.ReasonRouteTarget))
	require.Equal(t, status.Pending, table.Status.Phase)
	w.names(app, "egress")
	serves(w, whole, "db")

	audited := w.gateway("audited", "main", []string{"two"}, "db")
	serves(w, audited, "app", "db") // it names db: the other, which names none, gives it up
	w.untilReady(table, audited)
	require.Equal(t, string(audited.UID), *w.madeOf(table).Spec.Routes[0].NATGateway)
	require.Contains(t, w.untilReason(whole, "SubnetServed"), "Subnet app by NATGateway audited, to which its RouteTable leads")

	// It stays while the route is there.
	require.NoError(t, w.Delete(w.ctx, audited))
	require.Equal(t, "the NATGateway goes when no route leads to it any more: RouteTable egress", w.untilReason(audited, "InUse"))
	require.True(t, w.read(named(&netv1.NATGateway{}, string(audited.UID))))
	w.read(table)
	table.Spec.Routes = table.Spec.Routes[1:]
	require.NoError(t, w.Update(w.ctx, table))
	w.untilGone(audited)
	serves(w, whole, "app", "db")
	w.untilReady(table)

	// One of another Vpc is none.
	w.vpc("second", "10.0.0.0/16")
	w.gateway("elsewhere", "second", []string{"two"})
	wrong := w.table("wrong", "main", byGateway("0.0.0.0/0", "elsewhere"))
	require.Contains(t, w.untilReason(wrong, "RouteInvalid"), "spec.routes[0]: the route to 0.0.0.0/0 drops: NATGateway elsewhere is in another VPC; name one in this")
	require.Equal(t, status.Error, wrong.Status.Phase)
}

func TestATableItsNATGatewayAndWhatTheyHangOnGoInAnyOrder(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.pool("default", "203.0.113.0/28")
	for _, order := range [][]int{{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {3, 0, 4, 2, 1}} {
		vpc, subnet, eip := w.vpc("main", "10.0.0.0/16"), w.subnet("app", "main", "10.0.1.0/24"), w.externalIP("one", "", "")
		table, nat := w.table("egress", "main", byGateway("0.0.0.0/0", "out")), w.gateway("out", "main", []string{"one"}, "app")
		w.untilReady(subnet, eip)
		w.names(subnet, "egress")
		w.untilReady(table, nat)
		all := []client.Object{vpc, subnet, eip, table, nat}
		for _, i := range order {
			require.NoError(t, w.Delete(w.ctx, all[i]))
		}
		for _, o := range all {
			w.untilGone(o)
		}
		require.False(t, w.read(named(&netv1.NATGateway{}, string(nat.UID))), "%v", order)
	}
}
