package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/writes"
)

func TestTheSteadyStateCostsNoWrites(t *testing.T) {
	w := newTenant(t)
	startNetwork(t)
	stop := runControllers(t, nil)
	w.subnet("web", "10.0.1.0/24")
	c, waits := w.container("web-0", "web"), w.container("waits", "none")
	w.bind(c, "node-1", "")
	w.untilPhase(c, status.Ready)
	w.untilReason(waits, "SubnetNotFound")
	stop()

	// A controller that starts reconciles everything there is; a marker that comes after it shows that it has.
	log := writes.New(0)
	t.Cleanup(runControllers(t, log))
	other := newTenant(t)
	other.untilReason(other.container("marker", "none"), "SubnetNotFound")
	for _, line := range log.Lines() {
		require.NotContains(t, line, w.namespace, "all writes: %v", log.Lines())
	}
}

// TestAControllerThatDiesAtAnyWriteLeavesNothingBehind lets it die before each write of a Container's whole life:
// made, changed, deleted.
func TestAControllerThatDiesAtAnyWriteLeavesNothingBehind(t *testing.T) {
	startNetwork(t)
	for n := 1; ; n++ {
		reached := false
		ok := t.Run(fmt.Sprintf("write %d", n), func(t *testing.T) {
			w := newTenant(t)
			w.subnet("web", "10.0.1.0/24")
			log := writes.New(n)
			stop := runControllers(t, log)
			defer func() { stop() }()
			revive := func() {
				if log.Dead() && !reached {
					reached = true
					stop()
					stop = runControllers(t, nil)
				}
			}
			c := w.container("web-0", "web")
			nic := w.interfaceOf(c)
			w.live(c, revive, func() bool { return w.read(c) && c.Status.Phase == status.Ready })
			address := c.Status.Address

			before := c.DeepCopy()
			c.Spec.Image = "registry.mni.internal/mni/whoami:2"
			require.NoError(t, w.Patch(w.ctx, c, client.MergeFrom(before)))
			w.live(c, revive, func() bool {
				return w.read(c) && c.Status.Phase == status.Ready && c.Status.ObservedGeneration == c.Generation
			})
			require.Equal(t, address, c.Status.Address)

			require.NoError(t, w.Delete(w.ctx, c))
			w.live(c, revive, func() bool { return !w.read(c) })
			require.False(t, w.read(w.podOf(c)))
			require.False(t, w.read(nic))
		})
		if !ok || !reached {
			break
		}
	}
}

// live waits for the condition, doing meanwhile what scheduler and kubelet do, and looking after the controller.
func (w *tenant) live(c *ctrv1.Container, meanwhile func(), ok func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		require.False(w.t, time.Now().After(deadline), "not within %s: %v", patience, c.Status)
		meanwhile()
		pod := w.podOf(c)
		if w.read(pod) {
			switch {
			case pod.DeletionTimestamp != nil:
				w.end(pod)
			case pod.Spec.NodeName == "":
				w.bind(c, "node-1", "")
			}
		}
		<-tick.C
	}
}

func TestDeletingContainersAndTheirSubnetInAnyOrderConverges(t *testing.T) {
	startControllers(t)
	for _, subnetFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("subnet first: %v", subnetFirst), func(t *testing.T) {
			w := newTenant(t)
			subnet := w.subnet("web", "10.0.1.0/24")
			c := w.container("web-0", "web")
			pod := w.bind(c, "node-1", "")
			w.untilPhase(c, status.Ready)
			if subnetFirst {
				require.NoError(t, w.Delete(w.ctx, subnet))
			}
			require.NoError(t, w.Delete(w.ctx, c))
			if !subnetFirst {
				require.NoError(t, w.Delete(w.ctx, subnet))
			}
			w.end(pod)
			w.untilGone(c)
			require.False(t, w.read(w.interfaceOf(c)))
		})
	}
}

func TestAContainerOnALostNodeCanBeDeleted(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	lost := w.node("lost-"+w.namespace, corev1.ConditionUnknown)
	c := w.container("web-0", "web")
	w.bind(c, lost.Name, "")
	w.untilPhase(c, status.Ready)
	ahead.Store(int64(time.Minute))
	t.Cleanup(func() { ahead.Store(0) })
	require.NoError(t, w.Delete(w.ctx, c))
	w.untilGone(c)
}
