package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

func TestAPodOfATenantGetsATenantAddressAndAnInfrastructureAddress(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	subnet := w.network(ns, "a", "10.0.1.0/24")
	pod := w.pod(ns, "web", netv1.AnnotationSubnet, "a")
	nic := w.attached(pod)

	require.Equal(t, string(pod.UID), nic.Name)
	require.Contains(t, nic.Status.Address, "10.0.1.")
	require.Contains(t, nic.Status.InfrastructureAddress, "198.18.")
	require.EqualValues(t, 24, nic.Status.PrefixLength)
	require.Equal(t, "10.0.1.1", nic.Status.GatewayAddress)
	require.Equal(t, subnet.Status.VNI, nic.Status.VNI)
	require.Equal(t, subnet.Status.VPCID, nic.Status.VPCID)
	require.Equal(t, status.Ready, nic.Status.Phase)
	require.Equal(t, "a", nic.Labels[netv1.LabelVPC])
	require.ElementsMatch(t, []string{
		fmt.Sprintf("%d.%s", subnet.Status.VNI, nic.Status.Address), "1." + nic.Status.InfrastructureAddress,
	}, w.leases()[string(nic.UID)])

	require.Empty(t, nic.Spec.Node)
	w.schedule(pod, "node-1")
	w.eventually("the node is filled in", func() bool { return w.nic(nic.Name).Spec.Node == "node-1" })
	require.Equal(t, "node-1", w.nic(nic.Name).Labels[netv1.LabelNode])
	require.Equal(t, nic.Status.Address, w.nic(nic.Name).Status.Address)
}

func TestAnOrdinaryPodHasOneAddressInTheDefaultSubnet(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	nic := w.attached(w.pod(ns, "web"))
	require.Equal(t, netv1.DefaultSubnet, nic.Spec.Subnet)
	require.Equal(t, nic.Status.Address, nic.Status.InfrastructureAddress)
	require.Len(t, w.leases()[string(nic.UID)], 1)

	onHost := newPod(ns, "agent")
	onHost.Spec.HostNetwork = true
	w.make(onHost)
	w.attached(w.pod(ns, "after"))
	require.Empty(t, w.nic(string(onHost.UID)).UID, "a Pod on its host's network has no interface")
}

func TestAPodOfANamespaceThatTheVPCDoesNotListIsRefusedUntilItIsListed(t *testing.T) {
	w := newWorld(t)
	ns, stranger := w.namespace(), w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	pod := w.pod(stranger, "thief", netv1.AnnotationSubnet, "a")
	w.told(pod, reasonNamespaceRefused)
	require.Empty(t, w.nic(string(pod.UID)).UID, "nothing half-made")

	vpc := w.vpc("a")
	vpc.Spec.Namespaces = append(vpc.Spec.Namespaces, stranger)
	require.NoError(t, w.Update(w.ctx, vpc))
	w.attached(pod)
}

func TestAPodCannotTakeAnInterfaceOfAnotherNamespace(t *testing.T) {
	w := newWorld(t)
	victim, thief := w.namespace(), w.namespace()
	w.make(newVPC("a", victim, thief), newSubnet("a", "a", "10.0.1.0/24"))
	first := w.pod(victim, "web", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
	nic := w.attached(first)
	second := w.pod(thief, "web", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
	w.told(second, reasonInterfaceForeign)

	w.deletePod(first)
	w.eventually("the interface is free", func() bool { return w.nic("web-0").Spec.Pod == nil })
	again := w.pod(victim, "web-again", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
	require.Equal(t, nic.Status.Address, w.attached(again).Status.Address)
}

func TestOfTwoPodsThatNameOneInterfaceTheSecondWaitsForTheFirst(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	first := w.pod(ns, "one", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
	before := w.attached(first)
	second := w.pod(ns, "two", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
	w.told(second, reasonInterfaceInUse)
	require.Equal(t, first.UID, w.nic("web-0").Spec.Pod.UID)

	w.deletePod(first)
	after := w.attached(second)
	require.Equal(t, before.UID, after.UID)
	require.Equal(t, before.Status.Address, after.Status.Address)
	require.Equal(t, before.Status.MAC, after.Status.MAC)
}

func TestAPodMadeAnewGetsTheAddressAndMACOfItsInterfaceEveryTime(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	var first *netv1.NetworkInterface
	for range 5 {
		pod := w.pod(ns, "web", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
		w.schedule(pod, "node-1")
		nic := w.attached(pod)
		if first == nil {
			first = nic
		}
		require.Equal(t, first.UID, nic.UID)
		require.Equal(t, first.Status.Address, nic.Status.Address)
		require.Equal(t, first.Status.MAC, nic.Status.MAC)
		require.Equal(t, first.Status.InfrastructureAddress, nic.Status.InfrastructureAddress)
		w.deletePod(pod)
	}
	w.eventually("the interface is released", func() bool {
		nic := w.nic("web-0")
		return nic.Spec.Pod == nil && nic.Spec.Node == "" && nic.Labels[netv1.LabelNode] == "" && nic.Status.ReleasedAt != nil
	})
	require.Len(t, w.leases()[string(first.UID)], 2, "kept for the Subnet's leaseTTL")
}

func TestAnInterfaceNamedByItsPodStaysUntilThePodObjectIsGone(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	pod := newPod(ns, "web", netv1.AnnotationSubnet, "a")
	pod.Finalizers = []string{"test.mnicloud.jp/sandbox"} // as if the sandbox still ran
	w.make(pod)
	nic := w.attached(pod)
	w.remove(pod)
	// The controllers have seen the deletion when they have served a Pod made after it.
	w.attached(w.pod(ns, "after", netv1.AnnotationSubnet, "a"))
	require.Equal(t, pod.UID, w.nic(nic.Name).Spec.Pod.UID)
	require.Len(t, w.leases()[string(nic.UID)], 2)

	w.deletePod(pod)
	w.gone(nic)
	require.Empty(t, w.leases()[string(nic.UID)])
}

func TestAPodKeepsItsInterfaceWhateverItsAnnotationsSayLater(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	pod := w.pod(ns, "web", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
	nic := w.attached(pod)
	for i := range 3 {
		base := pod.DeepCopy()
		pod.Annotations[netv1.AnnotationInterface] = fmt.Sprintf("more-%d", i)
		pod.Annotations[netv1.AnnotationSubnet] = netv1.DefaultSubnet
		require.NoError(t, w.Patch(w.ctx, pod, client.MergeFrom(base)))
	}
	w.schedule(pod, "node-1")
	w.eventually("the node is filled in", func() bool { return w.nic("web-0").Spec.Node == "node-1" })
	var list netv1.NetworkInterfaceList
	require.NoError(t, w.List(w.ctx, &list))
	require.Len(t, list.Items, 1)
	require.Equal(t, nic.Status.Address, list.Items[0].Status.Address)
}

func TestAPodThatEndedLeavesItsInterface(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		pod := w.pod(ns, "job", netv1.AnnotationSubnet, "a")
		nic := w.attached(pod)
		w.finish(pod, phase)
		w.eventually("the interface is released", func() bool {
			now := w.nic(nic.Name)
			return now.Spec.Pod == nil && now.Status.ReleasedAt != nil
		})
		require.Len(t, w.leases()[string(nic.UID)], 2, "kept while the Pod object is there")
		w.deletePod(pod)
		w.gone(nic)
	}
}

func TestAReleasedInterfaceGoesAfterTheSubnetsLeaseTTL(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	subnet := newSubnet("a", "a", "10.0.1.0/24")
	subnet.Spec.LeaseTTL = &metav1.Duration{Duration: 1500 * time.Millisecond}
	w.make(newVPC("a", ns), subnet)
	pod := w.pod(ns, "web", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
	nic := w.attached(pod)
	w.deletePod(pod)
	w.eventually("the interface is released", func() bool { return w.nic("web-0").Status.ReleasedAt != nil })
	w.gone(nic)
	require.Empty(t, w.leases())
}

func TestANamespaceThatGoesTakesItsReleasedInterfacesWithIt(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	pod := w.pod(ns, "web", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
	nic := w.attached(pod)
	w.remove(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	w.deletePod(pod)
	w.gone(nic)
	require.Empty(t, w.leases())
}

func TestAnAddressAskedForIsGivenOrRefusedByName(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	first := w.pod(ns, "one", netv1.AnnotationSubnet, "a", netv1.AnnotationAddress, "10.0.1.77")
	nic := w.attached(first)
	require.Equal(t, "10.0.1.77", nic.Status.Address)

	second := w.pod(ns, "two", netv1.AnnotationSubnet, "a", netv1.AnnotationAddress, "10.0.1.77")
	w.told(second, reasonAddressInUse)
	waiting := w.nic(string(second.UID))
	require.Equal(t, status.Error, waiting.Status.Phase)
	require.Contains(t, readyOf(waiting).Message, "spec.address: 10.0.1.77 of Subnet a is in use by NetworkInterface "+nic.Name)
	require.Empty(t, w.leases()[string(waiting.UID)])

	outside := w.pod(ns, "three", netv1.AnnotationSubnet, "a", netv1.AnnotationAddress, "10.0.2.1")
	w.told(outside, reasonAddressInvalid)

	w.deletePod(first)
	require.Equal(t, "10.0.1.77", w.attached(second).Status.Address)
}

func TestAnAddressDoesNotChangeUnderAPod(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	pod := w.pod(ns, "web", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0", netv1.AnnotationAddress, "10.0.1.77")
	nic := w.attached(pod)
	nic.Spec.Address = "10.0.1.78"
	require.NoError(t, w.Update(w.ctx, nic))
	w.eventually("it is refused", func() bool { return w.why(w.nic("web-0")) == reasonAddressInterface })
	require.Equal(t, "10.0.1.77", w.nic("web-0").Status.Address)

	w.deletePod(pod)
	w.eventually("the free interface has the new address", func() bool { return w.nic("web-0").Status.Address == "10.0.1.78" })
	w.eventually("and not the old one", func() bool { return len(w.leases()[string(nic.UID)]) == 2 })
}

func TestAHundredInterfacesInASmallSubnet(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/28")
	pods := map[string]*corev1.Pod{}
	for i := range 100 {
		pod := w.pod(ns, fmt.Sprintf("p%d", i), netv1.AnnotationSubnet, "a")
		pods[string(pod.UID)] = pod
	}
	count := func() (ready, exhausted []*netv1.NetworkInterface) {
		var list netv1.NetworkInterfaceList
		require.NoError(t, w.List(w.ctx, &list))
		for i := range list.Items {
			switch nic := &list.Items[i]; {
			case w.isReady(nic):
				ready = append(ready, nic)
			case w.why(nic) == reasonExhausted:
				exhausted = append(exhausted, nic)
			}
		}
		return ready, exhausted
	}
	settled := func(n int) func() bool {
		return func() bool {
			ready, exhausted := count()
			require.LessOrEqual(t, len(ready), 13)
			return len(ready) == 13 && len(ready)+len(exhausted) == n
		}
	}
	w.eventually("13 have addresses, 87 say why not", settled(100))
	ready, exhausted := count()
	require.Contains(t, readyOf(exhausted[0]).Message, "all 13 addresses of Subnet a (10.0.1.0/28) are in use; delete an interface in it, or use a Subnet with a larger CIDR")
	require.Equal(t, status.Pending, exhausted[0].Status.Phase, "it waits")
	w.told(pods[exhausted[0].Name], reasonExhausted)
	require.Len(t, w.leases(), 13, "those without an address hold no infrastructure address either")

	for i, nic := range ready[:5] {
		w.deletePod(pods[nic.Name])
		w.eventually("another one gets the address", settled(99-i))
	}
}

// https://github.com/k8snetworkplumbingwg/whereabouts/issues/176
func TestAPodOfTheSameNameIsAnotherHolder(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	old := w.attached(w.pod(ns, "web-0", netv1.AnnotationSubnet, "a"))
	w.deletePod(newPod(ns, "web-0"))
	fresh := w.pod(ns, "web-0", netv1.AnnotationSubnet, "a")
	nic := w.attached(fresh)
	w.gone(old)
	require.Len(t, w.leases()[string(nic.UID)], 2)

	// Clean-up that comes late, with what it knew of the old holder, frees nothing of the new one's.
	allocator := &ipam.Allocator{Client: w.Client, Live: w.Client}
	require.NoError(t, allocator.ReleaseAll(w.ctx, ipam.Holder{Name: nic.Name, UID: old.UID}))
	var lease netv1.IPLease
	require.NoError(t, w.Get(w.ctx, client.ObjectKey{Name: fmt.Sprintf("%d.%s", nic.Status.VNI, nic.Status.Address)}, &lease))
	stale := lease.DeepCopy()
	stale.UID = "of-an-older-lease"
	require.NoError(t, allocator.Release(w.ctx, stale))
	require.Len(t, w.leases()[string(nic.UID)], 2)
}
