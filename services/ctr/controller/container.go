package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/apply"
	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// reconciler makes Containers run.
type reconciler struct {
	client client.Client
	// live reads from the API server itself.
	live client.Reader
	// pods is a cache of Containers' Pods, no others, and of nodes.
	pods   client.Reader
	events events.EventRecorder
	now    func() time.Time
}

// Reconcile brings one Container towards its spec, one step at a time: what the step changes brings the next.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c := &ctrv1.Container{}
	if err := r.client.Get(ctx, req.NamespacedName, c); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read Container %s: %w", req, err)
	}
	if err := r.collect(ctx, req.NamespacedName, c.UID); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case c.UID == "":
		return reconcile.Result{}, nil
	case !c.DeletionTimestamp.IsZero():
		return settle(r.delete(ctx, c))
	}
	return settle(r.ensure(ctx, c))
}

func (r *reconciler) ensure(ctx context.Context, c *ctrv1.Container) (time.Duration, error) {
	if no := dependency.Waits(c, ctrv1.Finalizer); no != nil {
		return 0, r.tell(ctx, world{container: c}, plan{result: *no})
	}
	w, err := r.look(ctx, c)
	if err != nil {
		return 0, err
	}
	if err := r.join(ctx, w); err != nil {
		return 0, err
	}
	p := decide(w)
	if p.step == makeInterface || p.step == makePod {
		if err := finalizer.Ensure(ctx, r.client, c, ctrv1.Finalizer); err != nil {
			return 0, fmt.Errorf("add the finalizer to Container %s: %w", client.ObjectKeyFromObject(c), err)
		}
	}
	p, err = r.take(ctx, w, p)
	if err != nil {
		return 0, err
	}
	p.result = withGroups(w, p.result)
	return p.again, r.tell(ctx, w, p)
}

// look gathers what the decisions need.
func (r *reconciler) look(ctx context.Context, c *ctrv1.Container) (world, error) {
	w := world{container: c, now: r.now()}
	key := client.ObjectKey{Namespace: c.Namespace, Name: c.Spec.Subnet}
	err := find(ctx, r.client, key, &vpcv1.Subnet{}, func(s *vpcv1.Subnet) { w.subnet = s })
	if err != nil {
		return w, err
	}
	if w.groups, err = r.groups(ctx, c); err != nil {
		return w, err
	}
	err = find(ctx, r.client, client.ObjectKey{Name: string(c.UID)}, &netv1.NetworkInterface{}, func(n *netv1.NetworkInterface) {
		if n.Spec.Namespace == c.Namespace {
			w.nic = n
		}
	})
	if err != nil {
		return w, err
	}
	err = find(ctx, r.pods, client.ObjectKeyFromObject(c), &corev1.Pod{}, func(p *corev1.Pod) {
		if metav1.IsControlledBy(p, c) {
			w.pod = p
		}
	})
	if err != nil {
		return w, err
	}
	if err := r.lookAtNodes(ctx, &w); err != nil {
		return w, err
	}
	namespace := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	err = find(ctx, r.client, client.ObjectKey{Name: c.Namespace}, namespace, func(n *metav1.PartialObjectMetadata) {
		w.leaving = !n.DeletionTimestamp.IsZero()
	})
	return w, err
}

// find reads an object and hands it on, unless it does not exist.
func find[T client.Object](ctx context.Context, from client.Reader, key client.ObjectKey, obj T, found func(T)) error {
	err := from.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %T %s: %w", obj, key, err)
	}
	found(obj)
	return nil
}

// take does the step. The plan that it returns differs when the API server refuses the step.
func (r *reconciler) take(ctx context.Context, w world, p plan) (plan, error) {
	switch p.step {
	case makeInterface:
		home := w.subnet.Status.Attachment.PodAnnotations[netv1.AnnotationSubnet]
		err := r.client.Create(ctx, newInterface(w.container, home, interfaceGroups(w)))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return p, fmt.Errorf("create the interface of Container %s: %w", client.ObjectKeyFromObject(w.container), err)
		}
		return p, nil
	case removeInterface:
		return p, r.giveBack(ctx, w, p)
	case makePod:
		return r.makePod(ctx, w, p)
	case removePod:
		return p, r.remove(ctx, w.pod)
	case forcePod:
		return p, r.remove(ctx, w.pod, client.GracePeriodSeconds(0))
	}
	return p, nil
}

func (r *reconciler) makePod(ctx context.Context, w world, p plan) (plan, error) {
	pod, err := render(w.container, w.subnet, addressOf(w.nic))
	if err != nil {
		return p, err
	}
	err = r.client.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		return r.nameTaken(ctx, w, p)
	}
	if problem, ok := refusedPod(err); ok {
		return problem, nil
	}
	if err != nil {
		return p, fmt.Errorf("create the Pod of Container %s: %w", client.ObjectKeyFromObject(w.container), err)
	}
	return p, nil
}

// nameTaken looks at whose the Pod of the Container's name is: its own, which the cache does not know yet, or another's.
func (r *reconciler) nameTaken(ctx context.Context, w world, p plan) (plan, error) {
	mine := true
	err := find(ctx, r.live, client.ObjectKeyFromObject(w.container), &corev1.Pod{}, func(pod *corev1.Pod) {
		mine = metav1.IsControlledBy(pod, w.container)
	})
	if err != nil || mine {
		return p, err
	}
	return plan{result: conditions.Failed("NameTaken", fmt.Sprintf(
		"a Pod named %q that is not this Container's is in the namespace; delete it, or make the Container with another name", w.container.Name)), again: retryRefused}, nil
}

// giveBack lets the interface go, to which no Pod is attached. The Container stops showing the address before, so that nobody
// ever sees two Containers with one. The API server itself is asked what it shows: a cache may not know yet what was
// written a moment ago.
func (r *reconciler) giveBack(ctx context.Context, w world, p plan) error {
	live := &ctrv1.Container{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(w.container), live); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Container %s: %w", client.ObjectKeyFromObject(w.container), err)
	}
	if live.UID == w.container.UID {
		w.container = live
		if err := r.tell(ctx, w, p); err != nil {
			return err
		}
	}
	return r.remove(ctx, w.nic)
}

func (r *reconciler) remove(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	uid := obj.GetUID()
	err := r.client.Delete(ctx, obj, append(opts, client.Preconditions{UID: &uid})...)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	return nil
}

// tell writes the Container's status, if it changed, and an event when it has become Ready or come to need help.
func (r *reconciler) tell(ctx context.Context, w world, p plan) error {
	c := w.container
	before := c.DeepCopy()
	s := &c.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(c, p.result)
	s.Address = shownAddress(w, p.step)
	s.Pod, s.Node, s.Restarts = "", "", 0
	if w.pod != nil {
		s.Pod, s.Node = w.pod.Name, w.pod.Spec.NodeName
		if status := containerStatus(w.pod); status != nil {
			s.Restarts = status.RestartCount
		}
	}
	if err := apply.Status(ctx, r.client, before, c); err != nil {
		return fmt.Errorf("write the status of Container %s: %w", client.ObjectKeyFromObject(c), err)
	}
	r.event(before, c, p.result)
	return nil
}
