package controller

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/apply"
	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// tenantObject is an object of any kind of vpc.mnicloud.jp.
type tenantObject interface {
	client.Object
	dependency.Object
}

// projection reconciles a kind of tenants' objects of which the backend makes one object each: finalizer first, the object, its
// status; on deletion what was made, then the finalizer.
type projection[T tenantObject] struct {
	client  client.Client
	live    client.Reader
	backend backend.Backend
	kind    backend.Kind
	// empty makes an object of the kind.
	empty func() T
	// status points to what a Result decides of an object's status.
	status func(T) conditions.Status
	// refuse, when set, says why nothing is made for an object (yet); nil when something may be.
	refuse func(context.Context, T) (refusal, error)
	// accept, when set, puts the finalizer on, unless it says why not.
	accept func(context.Context, T) (refusal, error)
	// make makes the network's object, fills in the status but for what a Result decides, and returns that.
	make func(context.Context, T) (conditions.Result, error)
	// users, when set, names what keeps an object that is to go.
	users func(context.Context, T) (refusal, error)
}

// Reconcile brings one object towards its spec.
func (p *projection[T]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	obj := p.empty()
	if err := p.client.Get(ctx, req.NamespacedName, obj); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read %s %s: %w", p.kind, req, err)
	}
	made, err := p.backend.MadeFor(ctx, p.kind, req.NamespacedName)
	if err == nil {
		err = collect(ctx, p.live, req.NamespacedName, p.empty(), made, obj.GetUID(), remover(p.backend, p.kind))
	}
	switch {
	case err != nil || obj.GetUID() == "":
		return reconcile.Result{}, err
	case obj.GetDeletionTimestamp() != nil:
		return settle(p.delete(ctx, obj))
	}
	return settle(p.ensure(ctx, obj))
}

func (p *projection[T]) ensure(ctx context.Context, obj T) error {
	if no := dependency.Waits(obj, vpcv1.Finalizer); no != nil {
		return p.refused(ctx, obj, no, nil)
	}
	for _, check := range []func(context.Context, T) (refusal, error){p.refuse, p.acceptance} {
		if check == nil {
			continue
		}
		if no, err := check(ctx, obj); err != nil || no != nil {
			return p.refused(ctx, obj, no, err)
		}
	}
	before := obj.DeepCopyObject()
	result, err := p.make(ctx, obj)
	if err != nil {
		return err
	}
	return p.tell(ctx, before, obj, result)
}

func (p *projection[T]) refused(ctx context.Context, obj T, no refusal, err error) error {
	if err != nil {
		return err
	}
	return p.tell(ctx, obj.DeepCopyObject(), obj, *no)
}

// acceptance puts the finalizer on, before anything is made.
func (p *projection[T]) acceptance(ctx context.Context, obj T) (refusal, error) {
	if slices.Contains(obj.GetFinalizers(), vpcv1.Finalizer) {
		return nil, nil
	}
	if p.accept != nil {
		return p.accept(ctx, obj)
	}
	if err := finalizer.Ensure(ctx, p.client, obj, vpcv1.Finalizer); err != nil {
		return nil, fmt.Errorf("add the finalizer to %s %s: %w", p.kind, client.ObjectKeyFromObject(obj), err)
	}
	return nil, nil
}

// delete lets the object go once nothing uses it and what was made for it is gone.
func (p *projection[T]) delete(ctx context.Context, obj T) error {
	if no := dependency.Held(string(p.kind), obj); no != nil {
		return p.refused(ctx, obj, no, nil)
	}
	if !slices.Contains(obj.GetFinalizers(), vpcv1.Finalizer) {
		if len(obj.GetFinalizers()) == 0 {
			return nil
		}
		return p.tell(ctx, obj.DeepCopyObject(), obj, conditions.Held(obj.GetFinalizers()))
	}
	if p.users != nil {
		if no, err := p.users(ctx, obj); err != nil || no != nil {
			return p.refused(ctx, obj, no, err)
		}
	}
	gone, err := p.backend.Delete(ctx, p.kind, obj.GetUID())
	if err != nil {
		return err
	}
	if !gone {
		return p.tell(ctx, obj.DeepCopyObject(), obj, conditions.Progressing(reasonDeleting, "the network is removing the "+string(p.kind)))
	}
	return finalizer.Remove(ctx, p.client, obj, vpcv1.Finalizer)
}

// tell writes the status of an object, which began as before.
func (p *projection[T]) tell(ctx context.Context, before runtime.Object, obj T, result conditions.Result) error {
	was, ok := before.(T)
	if !ok {
		return fmt.Errorf("a copy of a %s is a %T", p.kind, before)
	}
	p.status(obj).Apply(obj, result)
	return apply.Status(ctx, p.client, was, obj)
}

// remover deletes what a backend made for objects of a kind.
func remover(from backend.Backend, kind backend.Kind) func(context.Context, types.UID) (bool, error) {
	return func(ctx context.Context, uid types.UID) (bool, error) { return from.Delete(ctx, kind, uid) }
}

// setup adds the controller to the manager; watch says what else than its own kind and the backend's objects it looks at.
func (p *projection[T]) setup(mgr ctrl.Manager, name string, workers int, watch func(*ctrl.Builder)) error {
	b := ctrl.NewControllerManagedBy(mgr).Named(name).For(p.empty()).WithOptions(options(workers))
	watch(b)
	p.backend.Watch(b, p.kind)
	return b.Complete(p)
}
