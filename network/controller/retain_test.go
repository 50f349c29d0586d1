package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
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

// However many Pods come and go at once, whoever deletes and makes them, an interface has one address of its Subnet, and the same one.
// https://github.com/kubeovn/kube-ovn/issues/4898
func TestPodsThatComeAndGoAtOnceLeaveEachRetainedInterfaceItsOneAddress(t *testing.T) {
	const interfaces, rounds = 20, 3
	w := newWorld(t)
	namespace := w.namespace()
	subnet := w.network(namespace, "retain", "10.0.1.0/24")
	name := func(i int) string { return fmt.Sprintf("nic-%d-%s", i, namespace) }
	many(interfaces, func(i int) {
		w.make(&netv1.NetworkInterface{
			ObjectMeta: metav1.ObjectMeta{Name: name(i)},
			Spec:       netv1.NetworkInterfaceSpec{Subnet: subnet.Name, Namespace: namespace, Retain: true},
		})
	})
	had := map[string]string{}
	for i := range interfaces {
		w.eventually(name(i)+" has an address", func() bool { return w.isReady(w.nic(name(i))) })
		had[name(i)] = w.nic(name(i)).Status.Address
	}
	// At no moment has one interface two.
	ctx, stop := context.WithCancel(w.ctx)
	var watching errgroup.Group
	watching.Go(func() error {
		for {
			var leases netv1.IPLeaseList
			err := w.List(ctx, &leases)
			select {
			case <-ctx.Done():
				return nil
			default:
			}
			if err != nil {
				return err
			}
			of := map[string]string{}
			for _, l := range leases.Items {
				key := l.Spec.Subnet + " " + l.Spec.Interface
				if l.Spec.ReleasedAt != nil {
					continue
				}
				if other := of[key]; other != "" {
					return fmt.Errorf("NetworkInterface %s has %s and %s of Subnet %s", l.Spec.Interface, other, l.Spec.Address, l.Spec.Subnet)
				}
				of[key] = l.Spec.Address
			}
		}
	})
	t.Cleanup(stop)
	pods := make([]*corev1.Pod, interfaces)
	for round := range rounds {
		many(interfaces, func(i int) {
			on := func(who, nic string) *corev1.Pod {
				return w.pod(namespace, fmt.Sprintf("%s-%d-%d", who, i, round), netv1.AnnotationSubnet, subnet.Name, netv1.AnnotationInterface, nic)
			}
			next := on("pod", name(i))        // waits until the former one is gone
			passing := on("passing", name(0)) // all want the same one, none stays
			if pods[i] != nil {
				w.deletePod(pods[i])
			}
			w.deletePod(passing)
			pods[i] = next
		})
		for i, pod := range pods {
			require.Equal(t, had[name(i)], w.attached(pod).Status.Address)
		}
	}
	many(interfaces, func(i int) { w.deletePod(pods[i]) })
	w.eventually("all are without a Pod, with one address and one of the infrastructure each", func() bool {
		leases := w.leases()
		for i := range interfaces {
			nic := w.nic(name(i))
			require.Equal(t, had[name(i)], nic.Status.Address)
			if nic.Spec.Pod != nil || len(leases[string(nic.UID)]) != 2 {
				return false
			}
		}
		return len(leases) == interfaces
	})
	stop()
	require.NoError(t, watching.Wait())
}
