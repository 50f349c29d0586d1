package controller

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// interfaceReconciler gives interfaces their addresses and MACs, takes them from Pods that are gone, and releases them.
type interfaceReconciler struct {
	client    client.Client
	live      client.Reader
	events    events.EventRecorder
	config    Config
	ipam      *ipam.Allocator
	addresses *claim.Addresses
}

// Reconcile brings one interface towards its spec.
func (r *interfaceReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var nic netv1.NetworkInterface
	if err := r.client.Get(ctx, req.NamespacedName, &nic); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !nic.DeletionTimestamp.IsZero() {
		return settle(reconcile.Result{}, r.finalize(ctx, &nic))
	}
	return settle(r.provision(ctx, &nic))
}

func (r *interfaceReconciler) provision(ctx context.Context, nic *netv1.NetworkInterface) (reconcile.Result, error) {
	subnet, vpc, err := r.network(ctx, nic)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.adopt(ctx, nic, subnet); err != nil {
		return reconcile.Result{}, err
	}
	expired, left, err := r.release(ctx, nic, subnet)
	if err != nil {
		return reconcile.Result{}, err
	}
	if expired {
		err := r.client.Delete(ctx, nic, exactly(nic))
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	status := nic.Status.DeepCopy()
	o, err := r.addresses.Allocate(ctx, nic, subnet, vpc, status)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.groups(ctx, nic, status); err != nil {
		return reconcile.Result{}, err
	}
	if err := r.write(ctx, nic, status, o); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: left}, nil
}

// network reads the interface's Subnet and VPC; each is nil when it does not exist.
func (r *interfaceReconciler) network(ctx context.Context, nic *netv1.NetworkInterface) (*netv1.Subnet, *netv1.VPC, error) {
	var subnet netv1.Subnet
	if err := r.client.Get(ctx, client.ObjectKey{Name: nic.Spec.Subnet}, &subnet); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	var vpc netv1.VPC
	if err := r.client.Get(ctx, client.ObjectKey{Name: subnet.Spec.VPC}, &vpc); err != nil {
		return &subnet, nil, client.IgnoreNotFound(err)
	}
	return &subnet, &vpc, nil
}

// adopt puts the finalizer and the labels on an interface that somebody else made.
func (r *interfaceReconciler) adopt(ctx context.Context, nic *netv1.NetworkInterface, subnet *netv1.Subnet) error {
	base := nic.DeepCopy()
	if nic.Labels == nil {
		nic.Labels = map[string]string{}
	}
	if subnet != nil {
		maps.Copy(nic.Labels, ipam.Labels(subnet.Spec.VPC, subnet.Name))
	}
	claim.SetNode(nic, nic.Spec.Node)
	if !controllerutil.AddFinalizer(nic, netv1.Finalizer) && equality.Semantic.DeepEqual(base.Labels, nic.Labels) {
		return nil
	}
	if err := r.client.Patch(ctx, nic, optimistic(base)); err != nil {
		return fmt.Errorf("add the finalizer to NetworkInterface %s: %w", nic.Name, err)
	}
	return nil
}

// release takes the interface from a Pod that is gone. Expired says that nobody can, or came to, take it again; else left
// is how long its addresses are kept.
func (r *interfaceReconciler) release(ctx context.Context, nic *netv1.NetworkInterface, subnet *netv1.Subnet) (expired bool, left time.Duration, err error) {
	state, err := r.podState(ctx, nic)
	if err != nil {
		return false, 0, err
	}
	if state == claim.Gone && nic.Annotations[netv1.AnnotationHolderPod] != "" {
		return true, 0, nil
	}
	if state != claim.Alive && nic.Spec.Pod != nil {
		base := nic.DeepCopy()
		claim.Detach(nic)
		if err := r.client.Patch(ctx, nic, optimistic(base)); err != nil {
			return false, 0, fmt.Errorf("detach NetworkInterface %s from its Pod: %w", nic.Name, err)
		}
	}
	if nic.Spec.Pod != nil {
		return false, 0, nil
	}
	if over, err := r.namespaceOver(ctx, nic.Spec.Namespace); err != nil || over {
		return over, 0, err
	}
	if nic.Spec.Retain {
		return false, 0, nil
	}
	left = leaseTTL(subnet)
	if at := nic.Status.ReleasedAt; at != nil && !r.toCome(at) {
		left -= r.config.now().Sub(at.Time)
	}
	return left <= 0, left, nil
}

// toCome tells whether a time lies ahead: the clock has been set back since. Clocks of replicas may differ a little.
func (r *interfaceReconciler) toCome(at *metav1.Time) bool {
	const skew = time.Minute
	return at.After(r.config.now().Add(skew))
}

// podState is how far the interface's Pod has come: the one it is attached to, or the only one that ever may be.
func (r *interfaceReconciler) podState(ctx context.Context, nic *netv1.NetworkInterface) (claim.Life, error) {
	if pod := nic.Spec.Pod; pod != nil {
		return claim.PodLife(ctx, r.client, r.live, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name}, pod.UID)
	}
	if namespace, name, ok := strings.Cut(nic.Annotations[netv1.AnnotationHolderPod], "/"); ok {
		return claim.PodLife(ctx, r.client, r.live, client.ObjectKey{Namespace: namespace, Name: name}, types.UID(nic.Name))
	}
	return claim.Alive, nil
}

// namespaceOver tells whether no Pod can come any more from the namespace, because it is gone or going. One of the same
// name made later is another one, maybe somebody else's.
func (r *interfaceReconciler) namespaceOver(ctx context.Context, name string) (bool, error) {
	namespace := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, &namespace)
	if apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, client.ObjectKey{Name: name}, &namespace)
	}
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read Namespace %s: %w", name, err)
	}
	return !namespace.DeletionTimestamp.IsZero(), nil
}

// leaseTTL is how long a released interface of the Subnet keeps its addresses.
func leaseTTL(subnet *netv1.Subnet) time.Duration {
	const byDefault = 10 * time.Minute
	switch {
	case subnet == nil:
		return 0
	case subnet.Spec.LeaseTTL == nil:
		return byDefault
	}
	return max(0, subnet.Spec.LeaseTTL.Duration)
}

// finalize releases the interface's leases and lets it go, once no live Pod uses its addresses.
func (r *interfaceReconciler) finalize(ctx context.Context, nic *netv1.NetworkInterface) error {
	if !controllerutil.ContainsFinalizer(nic, netv1.Finalizer) {
		return nil
	}
	if pod := nic.Spec.Pod; pod != nil {
		state, err := r.podState(ctx, nic)
		if err != nil {
			return err
		}
		if state == claim.Alive {
			if err := r.keep(ctx, nic); err != nil {
				return err
			}
			return r.write(ctx, nic, nic.Status.DeepCopy(), conditions.Waiting(reasonWaitingForPod,
				"the interface goes when its Pod is deleted: "+pod.Namespace+"/"+pod.Name))
		}
	}
	// No peer may find a former holder beside the next one.
	if nic.Spec.Pod != nil {
		base := nic.DeepCopy()
		claim.Detach(nic)
		if err := r.client.Patch(ctx, nic, optimistic(base)); err != nil {
			return fmt.Errorf("detach NetworkInterface %s from its Pod: %w", nic.Name, err)
		}
	}
	if err := r.ipam.ReleaseAll(ctx, ipam.Holder{Name: nic.Name, UID: nic.UID}); err != nil {
		return err
	}
	return finalizer.Remove(ctx, r.client, nic, netv1.Finalizer)
}

// keep leases the addresses that an interface has anew if somebody took a lease away: until it is gone its Pod sends from them, and nobody
// else may.
func (r *interfaceReconciler) keep(ctx context.Context, nic *netv1.NetworkInterface) error {
	if nic.Status.Address == "" {
		return nil
	}
	subnet, vpc, err := r.network(ctx, nic)
	if err != nil {
		return err
	}
	_, err = r.addresses.Allocate(ctx, nic, subnet, vpc, nic.Status.DeepCopy())
	return err
}

func (r *interfaceReconciler) write(ctx context.Context, nic *netv1.NetworkInterface, status *netv1.NetworkInterfaceStatus, o conditions.Result) error {
	base := nic.DeepCopy()
	nic.Status = *status
	switch {
	case nic.Spec.Pod != nil, nic.Spec.Retain:
		nic.Status.ReleasedAt = nil
	case nic.Status.ReleasedAt == nil, r.toCome(nic.Status.ReleasedAt):
		nic.Status.ReleasedAt = &metav1.Time{Time: r.config.now()}
	}
	conditions.Status{Phase: &nic.Status.Phase, ObservedGeneration: &nic.Status.ObservedGeneration, Conditions: &nic.Status.Conditions}.Apply(nic, o)
	if equality.Semantic.DeepEqual(base.Status, nic.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, nic, optimistic(base)); err != nil {
		return fmt.Errorf("write the status of NetworkInterface %s: %w", nic.Name, err)
	}
	r.tellPod(base, nic)
	return nil
}

// tellPod sends the interface's Pod an event when the interface came to need help or room, or another help than before.
func (r *interfaceReconciler) tellPod(before, after *netv1.NetworkInterface) {
	is, was := trouble(after.Status.Conditions), trouble(before.Status.Conditions)
	if is == nil || after.Spec.Pod == nil || (was != nil && was.Reason == is.Reason) {
		return
	}
	ref := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: after.Spec.Pod.Namespace, Name: after.Spec.Pod.Name, UID: after.Spec.Pod.UID,
	}
	r.events.Eventf(ref, nil, corev1.EventTypeWarning, is.Reason, "AllocateAddress", "%s", is.Message)
}

// trouble is the Ready condition of an interface whose Pod does not start without something that people may have to do; nil
// otherwise.
func trouble(all []metav1.Condition) *metav1.Condition {
	ready := meta.FindStatusCondition(all, status.ConditionReady)
	if ready == nil || (ready.Reason != reasonExhausted && !meta.IsStatusConditionTrue(all, status.ConditionStalled)) {
		return nil
	}
	return ready
}
