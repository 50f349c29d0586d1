package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
)

// replica is a Pod that a StatefulSet named web would make.
func replica(namespace string, set types.UID, name string, annotations ...string) *corev1.Pod {
	pod := newPod(namespace, name, annotations...)
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: set, Controller: ptr(true)}}
	return pod
}

func TestTheInterfaceOfAReplicaIsNamedByItsSetAndNumber(t *testing.T) {
	require.Equal(t, "a.set-7", claim.InterfaceName(replica("a", "set", "web-7")))
	require.Equal(t, "b.set-7", claim.InterfaceName(replica("b", "set", "web-7")), "another namespace claims the owner")
	named := replica("a", "set", "web-7", netv1.AnnotationInterface, "mine")
	require.Equal(t, "mine", claim.InterfaceName(named))
	for _, name := range []string{"web-", "web-x", "web--1", "other-7", "web-7-8"} {
		pod := replica("a", "set", name)
		pod.UID = "uid"
		require.Equal(t, "uid", claim.InterfaceName(pod), name)
	}
	job := replica("a", "set", "web-7")
	job.UID, job.OwnerReferences[0].Kind = "uid", "Job"
	require.Equal(t, "uid", claim.InterfaceName(job))
}

// https://github.com/k8snetworkplumbingwg/whereabouts/issues/176
func TestAReplicaMadeAnewKeepsItsAddressAndMACThroughCleanUpsAndRestarts(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/29")
	replace := func(name string) *corev1.Pod {
		pod := replica(ns, "set-"+types.UID(ns), name, netv1.AnnotationSubnet, "a")
		w.make(pod)
		return pod
	}
	pod := replace("web-0")
	before := w.attached(pod)
	require.Contains(t, before.Annotations[netv1.AnnotationHolder], "StatefulSet web")
	for round := range 4 {
		if round%2 == 1 {
			w.stop()
		}
		w.deletePod(pod)
		if round == 0 {
			w.eventually("it is released", func() bool { return w.nic(before.Name).Status.ReleasedAt != nil })
			// Nobody else gets the address meanwhile, however full the Subnet is.
			for _, name := range []string{"other-0", "other-1", "other-2", "other-3", "other-4"} {
				w.pod(ns, name, netv1.AnnotationSubnet, "a")
			}
			w.eventually("all other addresses are given", func() bool {
				leases := 0
				for _, names := range w.leases() {
					leases += len(names)
				}
				return leases == 2*5 // each with an infrastructure address
			})
		}
		pod = replace("web-0")
		if round%2 == 1 {
			w.start()
		}
		after := w.attached(pod)
		require.Equal(t, before.UID, after.UID)
		require.Equal(t, before.Status.Address, after.Status.Address)
		require.Equal(t, before.Status.MAC, after.Status.MAC)
		require.Equal(t, before.Status.InfrastructureAddress, after.Status.InfrastructureAddress)
		require.Len(t, w.leases()[string(after.UID)], 2)
	}
}

func TestAfterTheTTLAnybodyHasTheAddressOfAReplica(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	subnet := w.network(ns, "a", "10.0.1.0/30") // one address
	base := subnet.DeepCopy()
	subnet.Spec.LeaseTTL = &metav1.Duration{Duration: 2 * time.Second}
	require.NoError(t, w.Patch(w.ctx, subnet, client.MergeFrom(base)))
	pod := replica(ns, "set-"+types.UID(ns), "web-0", netv1.AnnotationSubnet, "a")
	w.make(pod)
	first := w.attached(pod)
	w.deletePod(pod)
	var released time.Time
	w.eventually("it is released", func() bool {
		at := w.nic(first.Name).Status.ReleasedAt
		if at != nil {
			released = at.Time
		}
		return at != nil
	})
	other := w.pod(ns, "other", netv1.AnnotationSubnet, "a")
	w.eventually("it waits", func() bool { return w.why(w.nic(string(other.UID))) == reasonExhausted })
	nic := w.attached(other)
	require.Equal(t, first.Status.Address, nic.Status.Address)
	require.GreaterOrEqual(t, time.Since(released), 2*time.Second)
}
