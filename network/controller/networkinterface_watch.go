package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func (r *interfaceReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-interface").
		For(&netv1.NetworkInterface{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.interfaces(ctx, interfaceByPod, string(o.GetUID()))
		}), builder.WithPredicates(onPodEnd)).
		Watches(&netv1.Subnet{}, handler.EnqueueRequestsFromMapFunc(r.ofSubnet), onChangeOf(subnetFacts)).
		Watches(&netv1.VPC{}, handler.EnqueueRequestsFromMapFunc(r.ofVPC), onChangeOf(vpcFacts)).
		// A lease that goes leaves an address for whoever waits, and its holder (if it lives) without one.
		Watches(&netv1.IPLease{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			lease := o.(*netv1.IPLease)
			return append(r.interfaces(ctx, interfaceByNeed, lease.Spec.Subnet), requests(lease.Spec.Interface)...)
		}), builder.WithPredicates(onDelete)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.config.Workers}).
		Complete(r)
}

// interfaces lists interfaces by an index.
func (r *interfaceReconciler) interfaces(ctx context.Context, index, value string) []reconcile.Request {
	var list netv1.NetworkInterfaceList
	if err := r.client.List(ctx, &list, client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list NetworkInterfaces", index, value)
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, requests(list.Items[i].Name)...)
	}
	return out
}

// ofSubnet are the interfaces in the Subnet, and those that need an address of it.
func (r *interfaceReconciler) ofSubnet(ctx context.Context, subnet client.Object) []reconcile.Request {
	return append(r.interfaces(ctx, interfaceBySubnet, subnet.GetName()), r.interfaces(ctx, interfaceByNeed, subnet.GetName())...)
}

// ofVPC are the interfaces in the VPC's Subnets that are not Ready.
func (r *interfaceReconciler) ofVPC(ctx context.Context, vpc client.Object) []reconcile.Request {
	var list netv1.SubnetList
	if err := r.client.List(ctx, &list, client.MatchingFields{subnetByVPC: vpc.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the Subnets of a VPC", "vpc", vpc.GetName())
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, r.interfaces(ctx, interfaceByNeed, list.Items[i].Name)...)
	}
	return out
}

// onDelete lets only deletions through.
var onDelete = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
}

// onPodEnd lets only the end of Pods through: their containers have ended, or they are gone.
var onPodEnd = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		return before.UID != after.UID || (finished(after) && !finished(before))
	},
}

// onChangeOf lets through what is new or gone, and updates that change the facts.
func onChangeOf[facts comparable](of func(client.Object) facts) builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return of(e.ObjectOld) != of(e.ObjectNew)
	}})
}

// subnetFacts are what Pods and interfaces need to know of their Subnet.
func subnetFacts(o client.Object) any {
	s := o.(*netv1.Subnet)
	return struct {
		vni, vpcID         uint32
		gateway            string
		deleting, hasReady bool
		ttl                string
	}{s.Status.VNI, s.Status.VPCID, s.Status.GatewayMAC, !s.DeletionTimestamp.IsZero(), standingOf(s) == confirmed, leaseTTL(s).String()}
}

// vpcFacts are what Pods and interfaces need to know of their VPC.
func vpcFacts(o client.Object) any {
	v := o.(*netv1.VPC)
	return struct {
		generation int64
		id         uint32
	}{v.Generation, v.Status.ID}
}
