package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/writes"
)

func TestTheSteadyStateCostsNoWrites(t *testing.T) {
	w := newTenant(t)
	startNetwork(t)
	stop := runControllers(t, nil)
	web := w.subnet("web", "main", "10.0.1.0/24")
	w.untilReady(w.vpc("main", "10.0.0.0/16"), web)
	w.containerIn(web, "firewall", false)
	w.untilReady(w.table("inspected", "main", toContainer("0.0.0.0/0", "firewall"), vpcv1.Route{Destination: "10.9.0.0/16", Blackhole: ptr.To(true)}))
	w.untilReason(w.table("drops", "main", toContainer("0.0.0.0/0", "gone")), netv1.ReasonRouteTarget)
	w.names(web, "inspected")
	w.untilReady(web)
	w.untilReady(w.group("web", fromGroup("web")), w.group("db", fromGroup("web")))
	w.untilReason(w.group("waits", fromGroup("lost")), "SecurityGroupNotFound")
	w.untilReason(w.subnet("overlaps", "main", "10.0.1.0/24"), "CIDROverlap")
	w.untilReason(w.subnet("waits", "other", "10.0.1.0/24"), "VpcNotFound")
	w.untilReady(w.vpc("data", "10.1.0.0/16"))
	w.untilReady(w.peering("there", "main", "", "data"), w.peering("back", "data", "", "main"))
	w.untilReason(w.peering("silence", "main", "nobody", "data"), "WaitingForPeer")
	stop()

	// Controllers that start reconcile everything there is; a marker that comes after it shows that they have.
	again := writes.New(0)
	t.Cleanup(runControllers(t, again))
	other := newTenant(t)
	marker := other.subnet("marker", "none", "10.0.1.0/24")
	other.untilReason(marker, "VpcNotFound")
	for _, line := range again.Lines() {
		require.Contains(t, line, other.namespace, "all writes: %v", again.Lines())
	}
}

// TestControllersThatDieAtAnyWriteLeaveNothingBehind lets them die before each write of a whole life, making and
// deleting, and starts new ones.
func TestControllersThatDieAtAnyWriteLeaveNothingBehind(t *testing.T) {
	startNetwork(t)
	for n := 1; ; n++ {
		reached := false
		ok := t.Run(fmt.Sprintf("write %d", n), func(t *testing.T) {
			w := newTenant(t)
			log := writes.New(n)
			stop := runControllers(t, log)
			revive := func() {
				if log.Dead() && !reached {
					reached = true
					stop()
					stop = runControllers(t, nil)
				}
			}
			defer func() { stop() }()

			vpc, web, group := w.vpc("main", "10.0.0.0/16"), w.subnet("web", "main", "10.0.1.0/24"), w.group("web", fromGroup("web"))
			table := w.table("inspected", "main", vpcv1.Route{Destination: "10.9.0.0/16", Blackhole: ptr.To(true)})
			w.names(web, "inspected")
			all := []client.Object{group, table, vpc, web}
			w.eventually("ready", revive, func() bool {
				return !slices.ContainsFunc(all, func(o client.Object) bool { return !w.read(o) || !isReady(o) })
			})
			for _, o := range all {
				require.NoError(t, w.Delete(w.ctx, o))
			}
			w.eventually("gone", revive, func() bool { return !slices.ContainsFunc(all, w.read) })
			w.untilNothingOf(all...)
		})
		if !ok || !reached {
			break
		}
	}
}

func TestDeletingInAnyOrderConverges(t *testing.T) {
	startControllers(t)
	orders := [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 3, 1, 2}, {2, 0, 3, 1}, {1, 3, 0, 2}, {3, 0, 1, 2}}
	for _, order := range orders {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			w := newTenant(t)
			vpc, web, db := w.vpc("main", "10.0.0.0/16"), w.subnet("web", "main", "10.0.1.0/24"), w.subnet("db", "main", "10.0.2.0/24")
			w.untilReady(vpc, web, db)
			nic := w.interfaceIn(web, "Container web-0")
			until(w, "has an address", nic, func(n *netv1.NetworkInterface) bool { return n.Status.Address != "" })

			objects := []client.Object{vpc, web, db, nic}
			for _, i := range order {
				require.NoError(t, w.Delete(w.ctx, objects[i]))
			}
			begin := time.Now()
			for _, obj := range objects {
				w.untilGone(obj)
			}
			w.untilNothingOf(vpc, web, db)
			require.Less(t, time.Since(begin), 10*time.Second)
		})
	}
}

func isReady(o client.Object) bool {
	c := readyOf(o)
	return c != nil && c.Status == "True"
}

// eventually waits for the condition, looking after the controllers meanwhile.
func (w *tenant) eventually(what string, meanwhile func(), ok func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		require.False(w.t, time.Now().After(deadline), "not within %s: %s", patience, what)
		meanwhile()
		<-tick.C
	}
}
