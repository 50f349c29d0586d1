package controller

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
)

// podReconciler sees to it that each Pod that is not on its host's network has its NetworkInterface.
type podReconciler struct {
	client client.Client
	live   client.Reader
	events events.EventRecorder
	config Config
	// told remembers the last refusal told to each Pod, so that an event is sent only when it changes.
	told sync.Map // client.ObjectKey to telling
}

// telling is what a Pod was told.
type telling struct {
	uid types.UID
	why claim.Refusal
}

func (r *podReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-pod").
		For(&corev1.Pod{}).
		// An interface that becomes free, or goes, may be what a Pod waits for.
		Watches(&netv1.NetworkInterface{}, mapped(func(ctx context.Context, nic *netv1.NetworkInterface) []reconcile.Request {
			return r.pods(ctx, podByInterface, nic.Name)
		}), onUpdate(attachmentChanged)).
		Watches(&netv1.Subnet{}, mapped(func(ctx context.Context, subnet *netv1.Subnet) []reconcile.Request {
			return r.pods(ctx, podBySubnet, subnet.Name)
		}), onCreateOrUpdate(subnetChanged)).
		Watches(&netv1.VPC{}, mapped(r.podsOfVPC), onCreateOrUpdate(vpcChanged)).
		WatchesMetadata(&corev1.Namespace{}, mapped(func(ctx context.Context, _ *metav1.PartialObjectMetadata) []reconcile.Request {
			return r.pods(ctx, podByPlatform, netv1.PlatformTrue)
		}), onUpdate(func(before, after *metav1.PartialObjectMetadata) bool {
			return before.Labels[netv1.LabelPlatform] != after.Labels[netv1.LabelPlatform]
		})).
		// A Pod that waits for an interface waits for another Pod's end.
		Watches(&corev1.Pod{}, mapped(func(ctx context.Context, pod *corev1.Pod) []reconcile.Request {
			return r.pods(ctx, podByInterface, claim.InterfaceName(pod))
		}), onUpdate(podEnded)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.config.Workers}).
		Complete(r)
}

// attachmentChanged tells whether an interface's place changed: its Pod, its node, or whether it is to go.
func attachmentChanged(before, after *netv1.NetworkInterface) bool {
	return before.UID != after.UID || before.Generation != after.Generation ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
}

// podEnded tells whether a Pod's containers have ended, or another Pod has its name.
func podEnded(before, after *corev1.Pod) bool {
	return before.UID != after.UID || (claim.Finished(after) && !claim.Finished(before))
}

func (r *podReconciler) pods(ctx context.Context, index, value string) []reconcile.Request {
	var list corev1.PodList
	if err := r.client.List(ctx, &list, client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list Pods", index, value)
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

func (r *podReconciler) podsOfVPC(ctx context.Context, vpc *netv1.VPC) []reconcile.Request {
	var list netv1.SubnetList
	if err := r.client.List(ctx, &list, client.MatchingFields{subnetByVPC: vpc.Name}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the Subnets of a VPC", "vpc", vpc.Name)
	}
	// A namespace that is no VPC's any more may be the platform's.
	out := r.pods(ctx, podByPlatform, netv1.PlatformTrue)
	for i := range list.Items {
		if list.Items[i].Name != netv1.DefaultSubnet {
			out = append(out, r.pods(ctx, podBySubnet, list.Items[i].Name)...)
		}
	}
	return out
}

// Reconcile gives one Pod its interface. Taking it away is the interface's reconciler's.
func (r *podReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	if err := r.client.Get(ctx, req.NamespacedName, &pod); err != nil {
		r.told.Delete(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !claim.Networked(&pod) || claim.Finished(&pod) || !pod.DeletionTimestamp.IsZero() {
		r.told.Delete(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	no, err := r.provide(ctx, &pod)
	if err != nil {
		return settle(reconcile.Result{}, err)
	}
	r.tell(&pod, no)
	return reconcile.Result{}, nil
}

// provide makes, attaches or moves the Pod's interface, or says why not.
func (r *podReconciler) provide(ctx context.Context, pod *corev1.Pod) (*claim.Refusal, error) {
	// A Pod keeps the interface it has, whatever its annotations say by now: one interface a Pod, always.
	var has netv1.NetworkInterfaceList
	if err := r.client.List(ctx, &has, client.MatchingFields{interfaceByPod: string(pod.UID)}); err != nil {
		return nil, fmt.Errorf("list the NetworkInterfaces of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	for i := range has.Items {
		if claim.AttachedTo(&has.Items[i], pod) {
			return r.use(ctx, pod, &has.Items[i])
		}
	}
	if no := claim.CheckPod(pod); no != nil {
		return no, nil
	}
	var nic netv1.NetworkInterface
	err := r.client.Get(ctx, client.ObjectKey{Name: claim.InterfaceName(pod)}, &nic)
	if err == nil {
		return r.use(ctx, pod, &nic)
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read NetworkInterface %s: %w", claim.InterfaceName(pod), err)
	}
	subnet, no, err := claim.SubnetFor(ctx, r.client, pod)
	if err != nil || no != nil {
		return no, err
	}
	if no, err := r.platform(ctx, pod); err != nil || no != nil {
		return no, err
	}
	made := claim.NewInterface(pod, subnet)
	err = r.client.Create(ctx, made)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return nil, fmt.Errorf("create NetworkInterface %s for Pod %s/%s: %w", made.Name, pod.Namespace, pod.Name, err)
		}
		return nil, nil
	}
	// The cache lags behind.
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(made), &nic); err != nil {
		return nil, fmt.Errorf("read NetworkInterface %s, which exists already: %w", made.Name, err)
	}
	return r.use(ctx, pod, &nic)
}

// use attaches or moves an interface that exists.
func (r *podReconciler) use(ctx context.Context, pod *corev1.Pod, nic *netv1.NetworkInterface) (*claim.Refusal, error) {
	holderAlive := false
	if other := nic.Spec.Pod; other != nil && other.UID != pod.UID && nic.Spec.Namespace == pod.Namespace {
		state, err := claim.PodLife(ctx, r.client, r.live, client.ObjectKey{Namespace: other.Namespace, Name: other.Name}, other.UID)
		if err != nil {
			return nil, err
		}
		holderAlive = state == claim.Alive
	}
	what, no := claim.DecideAttachment(pod, nic, holderAlive)
	if what == claim.Nothing || what == claim.Deny {
		return no, nil
	}
	base := nic.DeepCopy()
	if what == claim.Attach {
		// Who may be in the VPC may have changed since the interface was made.
		if _, no, err := claim.SubnetFor(ctx, r.client, pod); err != nil || no != nil {
			return no, err
		}
		if no, err := r.platform(ctx, pod); err != nil || no != nil {
			return no, err
		}
		claim.AttachTo(nic, pod)
	}
	claim.SetNode(nic, pod.Spec.NodeName)
	if err := r.client.Patch(ctx, nic, optimistic(base)); err != nil {
		return nil, fmt.Errorf("attach NetworkInterface %s to Pod %s/%s: %w", nic.Name, pod.Namespace, pod.Name, err)
	}
	return nil, nil
}

// tell sends an event when the refusal is another one than last time.
func (r *podReconciler) tell(pod *corev1.Pod, no *claim.Refusal) {
	key := client.ObjectKeyFromObject(pod)
	if no == nil {
		r.told.Delete(key)
		return
	}
	now := telling{pod.UID, *no}
	if last, ok := r.told.Swap(key, now); !ok || last != now {
		r.events.Eventf(pod, nil, corev1.EventTypeWarning, no.Reason, "AttachNetworkInterface", "%s", no.Message)
	}
}
