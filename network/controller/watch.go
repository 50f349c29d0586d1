package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// mapped makes an event handler of a function that knows its kind.
func mapped[T client.Object](to func(context.Context, T) []reconcile.Request) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		t, ok := o.(T)
		if !ok {
			return nil
		}
		return to(ctx, t)
	})
}

// requests are reconcile requests for cluster-scoped objects.
func requests(names ...string) []reconcile.Request {
	out := make([]reconcile.Request, 0, len(names))
	for _, name := range names {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	}
	return out
}

// onDelete lets only deletions through.
var onDelete = builder.WithPredicates(predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
})

// onUpdate lets deletions through, and the updates that matter.
func onUpdate[T client.Object](matters func(before, after T) bool) builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: updated(matters),
	})
}

// onCreateOrUpdate lets through what is new or gone, and the updates that matter.
func onCreateOrUpdate[T client.Object](matters func(before, after T) bool) builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: updated(matters)})
}

func updated[T client.Object](matters func(before, after T) bool) func(event.UpdateEvent) bool {
	return func(e event.UpdateEvent) bool {
		before, wasT := e.ObjectOld.(T)
		after, isT := e.ObjectNew.(T)
		return wasT && isT && matters(before, after)
	}
}

// subnetChanged tells whether anything changed that Pods and interfaces in the Subnet need to know.
func subnetChanged(before, after *netv1.Subnet) bool {
	return before.UID != after.UID ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		before.Generation != after.Generation ||
		before.Status.VNI != after.Status.VNI ||
		before.Status.VPCID != after.Status.VPCID ||
		before.Status.GatewayMAC != after.Status.GatewayMAC
}

// vpcChanged tells whether anything changed that Pods and interfaces in the VPC need to know.
func vpcChanged(before, after *netv1.VPC) bool {
	return before.UID != after.UID || before.Generation != after.Generation || before.Status.ID != after.Status.ID
}
