package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// nodeThat makes a Node that has been Ready, or not, for a while.
func (w *world) nodeThat(name string, ready corev1.ConditionStatus, since time.Duration) {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.make(node)
	w.t.Cleanup(func() { w.remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}) })
	w.readiness(name, ready, since)
}

func (w *world) readiness(name string, ready corev1.ConditionStatus, since time.Duration) {
	w.t.Helper()
	node := &corev1.Node{}
	w.get(name, node)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(time.Now().Add(-since))}}
	require.NoError(w.t, w.Status().Update(w.ctx, node))
}

func (w *world) portBlock(name, address, node, gateway string, first int32) *netv1.PortBlock {
	b := &netv1.PortBlock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.PortBlockSpec{
		Address: address, FirstPort: first, Size: netv1.PortBlockSize, Node: node, NATGateway: gateway,
	}}
	w.make(b)
	return b
}

func TestANATGatewayIsReadyWhenEveryNodeWithWorkloadsTranslates(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "main", "10.0.1.0/24")
	w.externalPool("pub", "203.0.113.0/28")
	w.nodeThat("one", corev1.ConditionTrue, 0)
	w.nodeThat("two", corev1.ConditionFalse, 0)
	w.make(newExternalIP("e", "pub", "203.0.113.3"), newGateway("g", "main", []string{"e"}))
	w.natSays("g", natReady)
	w.scheduled(ns, "first", "one", netv1.AnnotationSubnet, "main")
	w.natSays("g", "claiming ports of the addresses: one; if it lasts, every port is taken: give the NATGateway another ExternalIP")
	w.portBlock("203.0.113.3.1024", "203.0.113.3", "one", "g", 1024)
	w.natSays("g", natReady)
	second := w.scheduled(ns, "second", "two", netv1.AnnotationSubnet, "main")
	w.natSays("g", natReady)
	w.readiness("two", corev1.ConditionTrue, 0)
	w.natSays("g", "claiming ports of the addresses: two;")
	w.deletePod(second)
	w.natSays("g", natReady)
}

func TestALostNodeKeepsNoNATGatewayThatGoes(t *testing.T) {
	w := newWorld(t)
	w.network(w.namespace(), "main", "10.0.1.0/24")
	w.externalPool("pub", "203.0.113.0/28")
	w.nodeThat("live", corev1.ConditionTrue, time.Hour)
	w.nodeThat("lost", corev1.ConditionUnknown, time.Hour)
	w.nodeThat("restarting", corev1.ConditionFalse, -time.Hour) // its patience does not end within the test
	w.make(newExternalIP("e", "pub", "203.0.113.3"), newGateway("g", "main", []string{"e"}))
	w.natSays("g", natReady)
	for i, node := range []string{"live", "lost", "restarting"} {
		first := netv1.FirstNATPort + int32(i)*netv1.PortBlockSize
		w.portBlock([]string{"203.0.113.3.1024", "203.0.113.3.1536", "203.0.113.3.2048"}[i], "203.0.113.3", node, "g", first)
	}
	w.remove(newGateway("g", "", nil))
	w.natSays("g", "the NATGateway goes when these nodes have given their PortBlocks back: live, restarting")
	w.remove(&netv1.PortBlock{ObjectMeta: metav1.ObjectMeta{Name: "203.0.113.3.1024"}})
	w.natSays("g", "given their PortBlocks back: restarting")
	w.readiness("restarting", corev1.ConditionTrue, 0)
	w.readiness("restarting", corev1.ConditionUnknown, time.Hour)
	w.absent(newGateway("g", "", nil))
}

// A node's object is gone, or the node is lost while its gateway goes. What it runs may translate all the same, so nobody else gets its ports, nor
// the address, before the quarantine ends; but what the tenant deletes goes.
func TestNobodyGetsTheExternalAddressThatALostNodeMayStillTranslateWith(t *testing.T) {
	w := idleWorld(t)
	w.config.PortQuarantine = time.Hour
	w.start()
	w.network(w.namespace(), "main", "10.0.1.0/24")
	w.externalPool("pub", "203.0.113.3/32", "203.0.113.4/32")
	w.nodeThat("one", corev1.ConditionTrue, time.Hour)
	w.make(newExternalIP("kept", "pub", "203.0.113.3"), newExternalIP("goes", "pub", "203.0.113.4"), newGateway("g", "main", []string{"kept", "goes"}))
	w.natSays("g", natReady)
	ofKept := w.portBlock("203.0.113.3.1024", "203.0.113.3", "one", "g", 1024)
	ofGoes := w.portBlock("203.0.113.4.1536", "203.0.113.4", "one", "g", 1536)
	w.remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}})
	for _, b := range []*netv1.PortBlock{ofKept, ofGoes} {
		w.eventually("the block is released", func() bool { w.get(b.Name, b); return b.Spec.ReleasedAt != nil })
	}

	w.remove(newGateway("g", "", nil))
	w.absent(newGateway("g", "", nil))
	w.make(newFloatingIP("f", "kept", ""))
	w.fipSays("f", "ExternalIP kept is NATGateway g's; this FloatingIP waits until that one is deleted and no node, not even a lost one, can translate for it any more")
	w.remove(newExternalIP("goes", "", ""))
	w.absent(newExternalIP("goes", "", ""))
	w.make(newExternalIP("next", "pub", "203.0.113.4"))
	w.eipSays("next", "203.0.113.4 ")
	lease := &netv1.IPLease{}
	w.get("0.203.0.113.4", lease)
	require.NotNil(t, lease.Spec.ReleasedAt)
	began := time.Now()
	w.eventually("the lease's own quarantine is over", func() bool { return time.Since(began) > 2*w.config.Quarantine })
	w.get("0.203.0.113.4", lease)

	// The nodes are back, or the cloud's owner knows that they are off.
	w.remove(ofGoes)
	w.eipSays("next", eipReady)
	w.remove(ofKept)
	w.fipSays("f", "spec.networkInterface names no interface")
}

// The cloud's owner lets NATGateways of many VPCs have one address at once. It stays theirs until the last is gone, and no FloatingIP gets it.
func TestASharedExternalIPIsHadByEveryNATGatewayThatNamesIt(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "red", "10.0.1.0/24")
	w.network(ns, "blue", "10.0.1.0/24")
	w.externalPool("pub", "203.0.113.3/32")
	w.nodeThat("one", corev1.ConditionTrue, 0)
	shared := newExternalIP("e", "pub", "")
	shared.Spec.Shared = true
	w.make(shared, newFloatingIP("f", "e", ""))
	w.fipSays("f", "spec.externalIP: ExternalIP e is shared by NATGateways; name another")
	require.Nil(t, w.eipSays("e", eipReady).Status.UsedBy)
	for _, name := range []string{"red", "blue"} {
		w.make(newGateway(name, name, []string{"e"}))
		require.Equal(t, []string{"203.0.113.3"}, w.natSays(name, natReady).Status.Addresses)
	}
	w.restart()
	require.Equal(t, "NATGateway", w.eipSays("e", eipReady).Status.UsedBy.Kind)

	// One without an address keeps nobody, and goes.
	empty := newExternalIP("empty", "nowhere", "")
	empty.Spec.Shared = true
	w.make(empty, newGateway("hopeful", "red", []string{"empty"}))
	w.natSays("hopeful", "spec.externalIPs[0]: ExternalIP empty ")
	w.remove(empty)
	w.absent(newExternalIP("empty", "", ""))
	w.remove(newGateway("hopeful", "", nil))
	w.absent(newGateway("hopeful", "", nil))

	// It goes with the last that names it, whoever came first; who comes now gets nothing.
	block := w.portBlock("203.0.113.3.1024", "203.0.113.3", "one", "blue", 1024)
	w.remove(shared)
	w.eipSays("e", "the ExternalIP goes when NATGateway ")
	w.make(newGateway("late", "red", []string{"e"}))
	require.Empty(t, w.natSays("late", "spec.externalIPs[0]: ExternalIP e is being deleted; delete this NATGateway too").Status.Addresses)
	w.remove(newGateway("late", "", nil))
	w.absent(newGateway("late", "", nil))
	w.remove(newGateway("red", "", nil))
	w.absent(newGateway("red", "", nil))
	w.eipSays("e", "the ExternalIP goes when NATGateway blue has given 203.0.113.3 back")
	require.Equal(t, []string{"203.0.113.3"}, w.natSays("blue", natReady).Status.Addresses)
	w.remove(newGateway("blue", "", nil))
	w.natSays("blue", "given their PortBlocks back: one")
	w.eipSays("e", "the ExternalIP goes when NATGateway blue has given 203.0.113.3 back")
	w.remove(block)
	w.absent(newGateway("blue", "", nil))
	w.absent(newExternalIP("e", "", ""))
}
