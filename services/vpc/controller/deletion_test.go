package controller

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
	"github.com/mnicloud/mnicloud/services/vpc/backend/netbackend"
)

// estate is one of each kind that a tenant has, hanging on each other, and what a workload and a node made of it.
type estate struct {
	w       *tenant
	objects []client.Object
	nic     *netv1.NetworkInterface
	block   *netv1.PortBlock
	vni     uint32
}

// furnish makes a tenant's estate, peered with another's Vpc; n tells several apart.
func furnish(w *tenant, n int, peer string) *estate {
	w.t.Helper()
	vpc, subnet := w.vpc("main", fmt.Sprintf("10.%d.0.0/16", n)), w.subnet("front", "main", fmt.Sprintf("10.%d.1.0/24", n))
	one, two := w.externalIP("one", "", ""), w.externalIP("two", "", "")
	w.untilReady(vpc, subnet, one, two)
	table, nat := w.table("egress", "main", byGateway("0.0.0.0/0", "out")), w.gateway("out", "main", []string{"two"}, "front")
	fip, peering := w.floatingIP("web", "one", "containers/web"), w.peering("peer", "main", peer, "main")
	w.names(subnet, "egress")
	e := &estate{w: w, objects: []client.Object{vpc, subnet, one, two, table, nat, fip, peering}, nic: w.containerIn(subnet, "web", true)}
	w.on(e.nic, "node-1")
	w.untilReady(table, fip, nat)
	e.vni = e.nic.Status.VNI
	e.block = &netv1.PortBlock{Spec: netv1.PortBlockSpec{
		Address: nat.Status.Addresses[0], FirstPort: netv1.FirstNATPort, Size: netv1.PortBlockSize, Node: "node-1", NATGateway: string(nat.UID),
	}}
	e.block.Name = fmt.Sprintf("%s.%d", e.block.Spec.Address, e.block.Spec.FirstPort)
	require.NoError(w.t, w.Create(w.ctx, e.block))
	return e
}

// leftovers is what is still there of the estate, whoever's it is.
func (e *estate) leftovers() (left []string) {
	for _, o := range e.objects {
		if e.w.read(o) {
			left = append(left, fmt.Sprintf("%T %s %v", o, describe(o), o.GetFinalizers()))
		}
	}
	for _, list := range []client.ObjectList{
		&netv1.VPCList{}, &netv1.SubnetList{}, &netv1.ExternalIPList{}, &netv1.FloatingIPList{}, &netv1.NATGatewayList{}, &netv1.RouteTableList{}, &netv1.VPCPeeringList{},
	} {
		require.NoError(e.w.t, e.w.List(e.w.ctx, list, client.MatchingLabels{netbackend.LabelNamespace: e.w.namespace}))
		if n := meta.LenList(list); n > 0 {
			left = append(left, fmt.Sprintf("%d in %T", n, list))
		}
	}
	var leases netv1.IPLeaseList
	require.NoError(e.w.t, e.w.List(e.w.ctx, &leases))
	for i := range leases.Items {
		if vni, address, err := ipam.ParseLeaseName(leases.Items[i].Name); err == nil && vni == e.vni {
			left = append(left, fmt.Sprintf("the lease of %s", address))
		}
	}
	return left
}

// What a tenant has is asked to go in any order, all at once, as when its namespace goes; the workload and the node's ports leave somewhere
// in between. It is gone within 30 s, and nothing of it is left. DELETION_SEED repeats an order.
func TestAllThatATenantHasGoesInAnyOrder(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("DELETION_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("DELETION_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	startControllers(t)
	newTenant(t).pool("default", "203.0.113.0/26")
	for round := range 2 {
		a, b := newTenant(t), newTenant(t)
		estates := []*estate{furnish(a, 0, b.namespace), furnish(b, 1, a.namespace)}
		a.untilReady(estates[0].objects[7])
		b.untilReady(estates[1].objects[7])
		var steps []func()
		var order []string
		for _, e := range estates {
			for _, o := range append([]client.Object{e.nic, e.block}, e.objects...) {
				steps = append(steps, func() {
					order = append(order, fmt.Sprintf("%T", o))
					require.NoError(t, client.IgnoreNotFound(e.w.Delete(e.w.ctx, o)))
				})
			}
		}
		random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		for _, step := range steps {
			step()
		}
		asked := time.Now()
		for _, e := range estates {
			require.Eventually(t, func() bool { return len(e.leftovers()) == 0 }, patience, 50*time.Millisecond,
				"round %d, in the order %v: %s", round, order, lazily(func() string { return fmt.Sprint(e.leftovers()) }))
		}
		require.Less(t, time.Since(asked), 30*time.Second, "round %d, in the order %v", round, order)
	}
}
