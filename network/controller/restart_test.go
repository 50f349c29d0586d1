package controller

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// https://github.com/kubeovn/kube-ovn/issues/4304
func TestAnAddressWhosePodWentWhileTheControllersWereDownIsNotGivenTwice(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	old := w.pod(ns, "old", netv1.AnnotationSubnet, "a", netv1.AnnotationAddress, "10.0.1.77")
	w.attached(old)
	w.stop()
	w.deletePod(old)
	first := w.pod(ns, "first", netv1.AnnotationSubnet, "a", netv1.AnnotationAddress, "10.0.1.77")
	second := w.pod(ns, "second", netv1.AnnotationSubnet, "a", netv1.AnnotationAddress, "10.0.1.77")
	w.start()
	w.eventually("exactly one has the address, the other one says why not", func() bool {
		a, b := w.nic(string(first.UID)), w.nic(string(second.UID))
		require.False(t, w.isReady(a) && w.isReady(b))
		return w.isReady(a) && w.why(b) == reasonAddressInUse || w.isReady(b) && w.why(a) == reasonAddressInUse
	})
}

// https://github.com/kubeovn/kube-ovn/issues/2709
func TestARestartWhileAnInterfaceHasNoPodKeepsItsAddressAndMAC(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	pod := w.pod(ns, "vm", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "vm-0")
	before := w.attached(pod)
	w.stop()
	w.deletePod(pod)
	w.start()
	w.eventually("the interface is released", func() bool { return w.nic("vm-0").Status.ReleasedAt != nil })
	w.restart()
	after := w.attached(w.pod(ns, "vm-again", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "vm-0"))
	require.Equal(t, before.Status.Address, after.Status.Address)
	require.Equal(t, before.Status.MAC, after.Status.MAC)
	require.Equal(t, before.Status.InfrastructureAddress, after.Status.InfrastructureAddress)
}

func TestAPodMadeAnewWhileTheControllersWereDownTakesItsInterfaceOver(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	pod := w.pod(ns, "web", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
	before := w.attached(pod)
	w.stop()
	w.deletePod(pod)
	again := w.pod(ns, "web", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
	w.start()
	after := w.attached(again)
	require.Equal(t, before.UID, after.UID)
	require.Equal(t, before.Status.Address, after.Status.Address)
	require.Equal(t, before.Status.MAC, after.Status.MAC)
}

// https://github.com/kubeovn/kube-ovn/issues/5688
func TestOrphanedLeasesAreFoundAndFreed(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	subnet := w.network(ns, "a", "10.0.1.0/28")
	nic := w.attached(w.pod(ns, "web", netv1.AnnotationSubnet, "a"))
	w.stop()
	orphan := func(address, holder string, subnet string) {
		w.make(&netv1.IPLease{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%d.%s", w.subnet("a").Status.VNI, address)},
			Spec:       netv1.IPLeaseSpec{Subnet: subnet, Address: address, Interface: holder, InterfaceUID: "gone"},
		})
	}
	for i := 2; i < 15; i++ {
		if address := fmt.Sprintf("10.0.1.%d", i); address != nic.Status.Address {
			orphan(address, "gone", subnet.Name)
		}
	}
	w.start()
	w.eventually("only the live interface has leases", func() bool { return len(w.leases()) == 1 })

	// While the controllers run, of an interface whose name lives on with another identity, or of a Subnet that is gone.
	for _, address := range []string{"10.0.1.2", "10.0.1.3"} {
		if address != nic.Status.Address {
			orphan(address, nic.Name, subnet.Name)
		}
	}
	w.eventually("only the live interface has leases", func() bool { return len(w.leases()) == 1 })
	require.Len(t, w.leases()[string(nic.UID)], 2)
}

func TestALeaseThatSomebodyDeletedIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	nic := w.attached(w.pod(ns, "web", netv1.AnnotationSubnet, "a"))
	before := w.leases()[string(nic.UID)]
	for _, name := range before {
		w.remove(&netv1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	w.eventually("the leases are back", func() bool { return len(w.leases()[string(nic.UID)]) == 2 })
	require.ElementsMatch(t, before, w.leases()[string(nic.UID)])
}

func TestAnInterfaceThatIsToGoWaitsForItsPod(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	pod := w.pod(ns, "web", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
	nic := w.attached(pod)
	w.remove(nic)
	w.eventually("it waits", func() bool { return w.why(w.nic("web-0")) == reasonWaitingForPod })
	require.Contains(t, readyOf(w.nic("web-0")).Message, ns+"/web")
	before := w.leases()[string(nic.UID)]
	require.Len(t, before, 2)
	for _, name := range before {
		w.remove(&netv1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	w.eventually("leases that somebody deleted are back, as the Pod lives", func() bool { return len(w.leases()[string(nic.UID)]) == 2 })
	require.ElementsMatch(t, before, w.leases()[string(nic.UID)])

	next := w.pod(ns, "next", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
	w.told(next, reasonInterfaceDeleting)
	w.deletePod(pod)
	w.gone(nic)
	require.NotEqual(t, nic.UID, w.attached(next).UID, "an interface of the same name is another one")
	require.Empty(t, w.leases()[string(nic.UID)])
}

func TestTheSteadyStateWritesNothing(t *testing.T) {
	w := idleWorld(t)
	writes := new(counting)
	w.wrap = func(c client.Client) client.Client { return writes.around(c) }
	w.start()
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/28")
	w.make(newSubnet("overlaps", "a", "10.0.1.0/24"))
	for i := range 20 {
		w.pod(ns, fmt.Sprintf("p%d", i), netv1.AnnotationSubnet, "a")
	}
	released := w.pod(ns, "vm", netv1.AnnotationInterface, "vm-0")
	w.attached(released)
	w.deletePod(released)
	w.eventually("everything has settled", func() bool {
		var list netv1.NetworkInterfaceList
		require.NoError(t, w.List(w.ctx, &list))
		settled := 0
		for i := range list.Items {
			if w.isReady(&list.Items[i]) || w.why(&list.Items[i]) == reasonExhausted {
				settled++
			}
		}
		return settled == 21 && w.why(w.subnet("overlaps")) == reasonCIDROverlap && w.nic("vm-0").Status.ReleasedAt != nil
	})
	w.restart()
	// A Pod made after the start is served after everything that was there before.
	w.attached(w.pod(ns, "last"))
	w.restart()
	before := writes.count()
	w.quiet(writes)
	require.Equal(t, before, writes.count(), "a start on what has settled writes: %s", writes.last())
}

// quiet waits until no write has come for a second.
func (w *world) quiet(writes *counting) {
	seen, since := writes.count(), time.Now()
	w.eventually("no more writes", func() bool {
		if now := writes.count(); now != seen {
			seen, since = now, time.Now()
		}
		return time.Since(since) > time.Second
	})
}

func TestAThousandInterfacesAtOnce(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.0.0/20")
	const n = 1000
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = newPod(ns, fmt.Sprintf("p%d", i), netv1.AnnotationSubnet, "a")
	}
	start := time.Now()
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := worker; i < n; i += 8 {
				if err := w.Create(w.ctx, pods[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	made := time.Since(start)
	w.eventually("all have addresses", func() bool {
		var list netv1.NetworkInterfaceList
		require.NoError(t, w.List(w.ctx, &list))
		ready := 0
		for i := range list.Items {
			if w.isReady(&list.Items[i]) {
				ready++
			}
		}
		return ready == n
	})
	t.Logf("%d Pods made in %s, all interfaces ready after %s", n, made, time.Since(start))
	var leases netv1.IPLeaseList
	require.NoError(t, w.List(w.ctx, &leases))
	require.Len(t, leases.Items, 2*n)
}
