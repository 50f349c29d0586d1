package controller

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// clock is the world's, as far ahead of the real one as a test sets it.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time       { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) set(to time.Duration) { c.ahead.Store(int64(to)) }
func (w *world) clocked() (c *clock)  { c = &clock{}; w.config.now = c.now; return c }
func released(at time.Time) *netv1.IPLease {
	micro := metav1.NewMicroTime(at)
	return &netv1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: ipam.LeaseName(netv1.DefaultVNI, prefix("198.18.0.5/32").Addr()), UID: types.UID("lease")},
		Spec:       netv1.IPLeaseSpec{Subnet: netv1.DefaultSubnet, Address: "198.18.0.5", Interface: "gone", InterfaceUID: "gone", ReleasedAt: &micro},
	}
}

func TestAQuarantineLastsItsTimeWhateverTheClockIsSetTo(t *testing.T) {
	for name, at := range map[string]time.Time{
		"released now": time.Now(), "the clock was set forward since": time.Now().Add(-time.Hour), "the clock was set back since": time.Now().Add(time.Hour),
		"released before the controller was down for an hour": time.Now().Add(-time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			lease := released(at)
			c := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(lease).Build()
			begin := time.Now()
			now := begin
			r := &leaseReconciler{
				client: c, live: c, ipam: &ipam.Allocator{Client: c, Live: c, Quarantine: time.Minute},
				quarantines: newQuarantines(func() time.Time { return now }),
			}
			request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(lease)}
			for _, passed := range []time.Duration{0, 20 * time.Second, 59 * time.Second} {
				now = begin.Add(passed)
				result, err := r.Reconcile(t.Context(), request)
				require.NoError(t, err)
				require.Equal(t, time.Minute-passed, result.RequeueAfter)
			}
			now = begin.Add(time.Minute)
			_, err := r.Reconcile(t.Context(), request)
			require.NoError(t, err)
			require.Error(t, c.Get(t.Context(), request.NamespacedName, lease), "the lease is gone")

			next := released(at)
			next.UID = "next"
			next.ResourceVersion = ""
			require.NoError(t, c.Create(t.Context(), next))
			result, err := r.Reconcile(t.Context(), request)
			require.NoError(t, err)
			require.Equal(t, time.Minute, result.RequeueAfter, "another lease has a quarantine of its own")
			require.NoError(t, c.Delete(t.Context(), next))
			_, err = r.Reconcile(t.Context(), request)
			require.NoError(t, err)
			require.Empty(t, r.quarantines.first, "what is gone is forgotten")
		})
	}
}

// The node's object is gone; that of another is there, and Ready. By the controller's own clock, which is not set.
func TestPortsOfANodeThatIsGoneAreNobodysUntilNoFlowCanBeLeft(t *testing.T) {
	block := func(node, uid string) *netv1.PortBlock {
		return &netv1.PortBlock{
			ObjectMeta: metav1.ObjectMeta{Name: "203.0.113.5.1024", UID: types.UID(uid)},
			Spec:       netv1.PortBlockSpec{Address: "203.0.113.5", FirstPort: 1024, Size: netv1.PortBlockSize, Node: node, NATGateway: "g"},
		}
	}
	c := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(block("gone", "first")).Build()
	begin := time.Now()
	now := begin
	reconciler := func() *portBlockReconciler {
		config, err := Config{InfrastructureCIDR: prefix("198.18.0.0/17")}.complete()
		require.NoError(t, err)
		return &portBlockReconciler{client: c, live: c, config: config, quarantines: newQuarantines(func() time.Time { return now })}
	}
	r := reconciler()
	request := ctrl.Request{NamespacedName: client.ObjectKey{Name: "203.0.113.5.1024"}}
	left := func() time.Duration {
		t.Helper()
		result, err := r.Reconcile(t.Context(), request)
		require.NoError(t, err)
		return result.RequeueAfter
	}
	released := func() bool {
		t.Helper()
		b := &netv1.PortBlock{}
		require.NoError(t, c.Get(t.Context(), request.NamespacedName, b), "it is there")
		return b.Spec.ReleasedAt != nil
	}
	require.Zero(t, left())
	require.True(t, released(), "whoever hears of it goes by it at once")
	const longestFlow = 8000 * time.Second // of bpf/conntrack.h
	for _, passed := range []time.Duration{0, time.Minute, longestFlow} {
		now = begin.Add(passed)
		require.Equal(t, 135*time.Minute-passed, left())
		require.True(t, released())
	}
	r = reconciler()
	require.Equal(t, 135*time.Minute, left(), "it begins anew with the controller")
	now = now.Add(135 * time.Minute)
	require.Zero(t, left())
	require.Error(t, c.Get(t.Context(), request.NamespacedName, &netv1.PortBlock{}), "it is gone")
	require.Zero(t, left())
	require.Empty(t, r.quarantines.first, "what is gone is forgotten")

	// The next holder is Ready, and stays; it goes, and has a quarantine of its own.
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "there"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	require.NoError(t, c.Create(t.Context(), node))
	require.NoError(t, c.Create(t.Context(), block("there", "second")))
	require.Zero(t, left())
	require.False(t, released())
	require.NoError(t, c.Delete(t.Context(), node))
	require.Zero(t, left())
	require.True(t, released())
	require.Equal(t, 135*time.Minute, left())
}

// An interface was released while the clock was an hour ahead. Its TTL begins when the clock is right again; else it would last
// an hour and ten minutes.
func TestATTLBeginsAnewWhenTheClockIsSetBack(t *testing.T) {
	w := idleWorld(t)
	clock := w.clocked()
	clock.set(time.Hour)
	w.start()
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	pod := w.pod(ns, "vm", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "vm-0")
	address := w.attached(pod).Status.Address
	w.deletePod(pod)
	w.eventually("it is released, in an hour", func() bool {
		at := w.nic("vm-0").Status.ReleasedAt
		return at != nil && at.After(time.Now().Add(30*time.Minute))
	})
	clock.set(0)
	w.restart()
	w.eventually("it is released now", func() bool { return !w.nic("vm-0").Status.ReleasedAt.After(time.Now()) })
	again := w.attached(w.pod(ns, "vm-again", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "vm-0"))
	require.Equal(t, address, again.Status.Address)
}

func TestAfterAnHourWithoutControllersTTLsAreOverAndWhatRunsIsAsItWas(t *testing.T) {
	w := idleWorld(t)
	clock := w.clocked()
	w.start()
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	runs := w.pod(ns, "runs", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "runs-0")
	before := w.attached(runs)
	parted := w.pod(ns, "parted", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "parted-0")
	w.attached(parted)
	w.deletePod(parted)
	w.eventually("it is released", func() bool { return w.nic("parted-0").Status.ReleasedAt != nil })
	ended := w.pod(ns, "ended", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "ended-0")
	kept := w.attached(ended).Status.Address

	w.stop()
	w.deletePod(ended)
	made := w.pod(ns, "made", netv1.AnnotationSubnet, "a")
	clock.set(time.Hour)
	w.start()
	w.attached(made)
	w.gone(&netv1.NetworkInterface{ObjectMeta: metav1.ObjectMeta{Name: "parted-0"}})
	w.eventually("the TTL of what ended meanwhile begins now", func() bool { return w.nic("ended-0").Status.ReleasedAt != nil })
	require.Equal(t, kept, w.nic("ended-0").Status.Address)
	after := w.attached(runs)
	require.Equal(t, before.Status, after.Status)
}
