package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func newPeering(name, vpc, peer string) *netv1.VPCPeering {
	return &netv1.VPCPeering{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.VPCPeeringSpec{VPC: vpc, Peer: peer}}
}

// saysOfPeering waits for a VPCPeering's Ready condition to have a reason, and returns its message.
func (w *world) saysOfPeering(name, reason string) string {
	w.t.Helper()
	var ready *metav1.Condition
	w.eventually("VPCPeering "+name+" has reason "+reason, func() bool {
		var p netv1.VPCPeering
		require.NoError(w.t, w.Get(w.ctx, client.ObjectKey{Name: name}, &p))
		ready = meta.FindStatusCondition(p.Status.Conditions, "Ready")
		return ready != nil && ready.Reason == reason && ready.ObservedGeneration == p.Generation
	})
	return ready.Message
}

func TestAVPCPeeringIsReadyWhileBothVPCsAgreeAndDoNotOverlap(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "left", "10.0.1.0/24")
	w.make(newPeering("there", "left", "right"))
	require.Equal(t, "waits for a VPCPeering of VPC right with VPC left; nothing passes before", w.saysOfPeering("there", netv1.ReasonPeerSilent))
	w.make(newPeering("back", "right", "left"))
	require.Contains(t, w.saysOfPeering("there", "WaitingForVPC"), "spec.peer: VPC right does not exist yet")
	require.Contains(t, w.saysOfPeering("back", "WaitingForVPC"), "spec.vpc: VPC right does not exist yet")
	w.network(ns, "right", "10.0.2.0/24")
	w.saysOfPeering("there", "Ready")
	w.saysOfPeering("back", "Ready")
	w.make(newSubnet("thief", "right", "10.0.1.128/25"))
	require.Contains(t, w.saysOfPeering("there", netv1.ReasonPeerOverlap), "spec.peer: 10.0.1.128/25 of Subnet thief overlaps 10.0.1.0/24 of Subnet left")
	require.Contains(t, w.saysOfPeering("back", netv1.ReasonPeerOverlap), "10.0.1.0/24 of Subnet left overlaps 10.0.1.128/25 of Subnet thief")
	w.remove(newSubnet("thief", "", ""))
	w.saysOfPeering("there", "Ready")
	w.remove(newPeering("back", "", ""))
	w.saysOfPeering("there", netv1.ReasonPeerSilent)
}

func TestTheAPIServerRefusesVPCPeeringsThatCannotBe(t *testing.T) {
	w := idleWorld(t)
	require.ErrorContains(t, w.Create(w.ctx, newPeering("p", "a", "a")), "a VPC is not peered with itself")
	require.ErrorContains(t, w.Create(w.ctx, newPeering("p", "default", "a")), "the default VPC is peered with none")
	require.ErrorContains(t, w.Create(w.ctx, newPeering("p", "a", "default")), "the default VPC is peered with none")
	p := newPeering("p", "a", "b")
	w.make(p)
	p.Spec.Peer = "c"
	require.ErrorContains(t, w.Update(w.ctx, p), "peer cannot be changed; make a new VPCPeering")
}
