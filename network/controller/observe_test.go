package controller

import (
	"fmt"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
)

// What a test sees of its world.

func (w *world) vpc(name string) *netv1.VPC {
	var o netv1.VPC
	w.get(name, &o)
	return &o
}

func (w *world) subnet(name string) *netv1.Subnet {
	var o netv1.Subnet
	w.get(name, &o)
	return &o
}

// nic reads an interface; one that does not exist has no UID.
func (w *world) nic(name string) *netv1.NetworkInterface {
	var o netv1.NetworkInterface
	w.get(name, &o)
	return &o
}

func (w *world) get(name string, o client.Object) {
	w.t.Helper()
	if err := w.Get(w.ctx, client.ObjectKey{Name: name}, o); !apierrors.IsNotFound(err) {
		require.NoError(w.t, err)
	}
}

// attached waits until the Pod's interface is ready for it, and returns it.
func (w *world) attached(pod *corev1.Pod) *netv1.NetworkInterface {
	w.t.Helper()
	var nic *netv1.NetworkInterface
	w.eventually("Pod "+pod.Name+" has its interface", func() bool {
		nic = w.nic(claim.InterfaceName(pod))
		return nic.Spec.Pod != nil && nic.Spec.Pod.UID == pod.UID && w.isReady(nic) && nic.Status.ReleasedAt == nil
	})
	return nic
}

// gone waits until the object of that identity does not exist.
func (w *world) gone(o client.Object) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%T %s is gone", o, o.GetName()), func() bool {
		now, ok := o.DeepCopyObject().(client.Object)
		require.True(w.t, ok)
		err := w.Get(w.ctx, client.ObjectKeyFromObject(o), now)
		return apierrors.IsNotFound(err) || (err == nil && now.GetUID() != o.GetUID())
	})
}

// why is the reason of the object's Ready condition.
func (w *world) why(o client.Object) string {
	if c := readyOf(o); c != nil {
		return c.Reason
	}
	return ""
}

func (w *world) isReady(o client.Object) bool {
	c := readyOf(o)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == o.GetGeneration()
}

func readyOf(o client.Object) *metav1.Condition {
	switch o := o.(type) {
	case *netv1.VPC:
		return meta.FindStatusCondition(o.Status.Conditions, status.ConditionReady)
	case *netv1.Subnet:
		return meta.FindStatusCondition(o.Status.Conditions, status.ConditionReady)
	case *netv1.NetworkInterface:
		return meta.FindStatusCondition(o.Status.Conditions, status.ConditionReady)
	}
	return nil
}

// leases are the names of all leases that are in use, by the interface's UID.
func (w *world) leases() map[string][]string {
	w.t.Helper()
	var list netv1.IPLeaseList
	require.NoError(w.t, w.List(w.ctx, &list))
	out := map[string][]string{}
	for _, l := range list.Items {
		if l.Spec.ReleasedAt != nil {
			continue
		}
		out[string(l.Spec.InterfaceUID)] = append(out[string(l.Spec.InterfaceUID)], l.Name)
	}
	return out
}

// told waits for an event about the Pod with the reason.
func (w *world) told(pod *corev1.Pod, reason string) {
	w.t.Helper()
	w.eventually("an event "+reason+" about Pod "+pod.Name, func() bool {
		var list corev1.EventList
		require.NoError(w.t, w.List(w.ctx, &list, client.InNamespace(pod.Namespace)))
		for _, e := range list.Items {
			if e.InvolvedObject.UID == pod.UID && e.Reason == reason {
				return true
			}
		}
		return false
	})
}
