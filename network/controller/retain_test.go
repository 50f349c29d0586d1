package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// A controller that makes Pods again and again keeps one interface for all of them; in between it has none. Deleted then, it gives
// its addresses back (https://github.com/kubeovn/kube-ovn/issues/5367).
func TestARetainedInterfaceHasItsAddressBeforeThePodAndKeepsItWithoutOne(t *testing.T) {
	w := newWorld(t)
	namespace := w.namespace()
	subnet := w.network(namespace, "retain", "10.0.1.0/29")
	before := subnet.DeepCopy()
	subnet.Spec.LeaseTTL = &metav1.Duration{Duration: 10 * time.Millisecond}
	require.NoError(t, w.Patch(w.ctx, subnet, client.MergeFrom(before)))

	retained := &netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{Name: "retained-" + namespace},
		Spec:       netv1.NetworkInterfaceSpec{Subnet: subnet.Name, Namespace: namespace, Retain: true},
	}
	released := &netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{Name: "released-" + namespace},
		Spec:       netv1.NetworkInterfaceSpec{Subnet: subnet.Name, Namespace: namespace},
	}
	w.make(retained, released)
	w.eventually("it has an address", func() bool { return w.isReady(w.nic(retained.Name)) })
	address := w.nic(retained.Name).Status.Address
	w.gone(released)

	pod := w.pod(namespace, "web-0", netv1.AnnotationSubnet, subnet.Name, netv1.AnnotationInterface, retained.Name)
	w.schedule(pod, "node-1")
	require.Equal(t, address, w.attached(pod).Status.Address)
	w.deletePod(pod)
	var after *netv1.NetworkInterface
	w.eventually("it is detached, and ready", func() bool {
		after = w.nic(retained.Name)
		return after.Spec.Pod == nil && w.isReady(after)
	})
	require.Equal(t, address, after.Status.Address)
	require.Nil(t, after.Status.ReleasedAt)

	w.remove(after)
	w.gone(after)
	require.Empty(t, w.leases()[string(after.UID)])
}
