package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func (r *interfaceReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-interface").
		For(&netv1.NetworkInterface{}).
		Watches(&corev1.Pod{}, mapped(func(ctx context.Context, pod *corev1.Pod) []reconcile.Request {
			return r.interfaces(ctx, interfaceByPod, string(pod.UID))
		}), onUpdate(podEnded)).
		Watches(&netv1.Subnet{}, mapped(r.ofSubnet), onCreateOrUpdate(subnetChanged)).
		Watches(&netv1.VPC{}, mapped(r.ofVPC), onCreateOrUpdate(vpcChanged)).
		Watches(&netv1.SecurityGroup{}, mapped(func(ctx context.Context, group *netv1.SecurityGroup) []reconcile.Request {
			return r.interfaces(ctx, interfaceByGroup, group.Name)
		}), onCreateOrUpdate(func(before, after *netv1.SecurityGroup) bool { return before.UID != after.UID })).
		Watches(&netv1.IPLease{}, mapped(r.holderOf)).
		Watches(&netv1.IPLease{}, mapped(r.inNeed), onDelete).
		WatchesMetadata(&corev1.Namespace{}, mapped(func(ctx context.Context, namespace *metav1.PartialObjectMetadata) []reconcile.Request {
			return r.interfaces(ctx, interfaceByNamespace, namespace.Name)
		}), onUpdate(func(before, after *metav1.PartialObjectMetadata) bool {
			return before.DeletionTimestamp.IsZero() && !after.DeletionTimestamp.IsZero()
		})).
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
func (r *interfaceReconciler) ofSubnet(ctx context.Context, subnet *netv1.Subnet) []reconcile.Request {
	return append(r.interfaces(ctx, interfaceBySubnet, subnet.Name), r.interfaces(ctx, interfaceByNeed, subnet.Name)...)
}

// ofVPC are the interfaces in the VPC's Subnets that are not Ready.
func (r *interfaceReconciler) ofVPC(ctx context.Context, vpc *netv1.VPC) []reconcile.Request {
	var list netv1.SubnetList
	if err := r.client.List(ctx, &list, client.MatchingFields{subnetByVPC: vpc.Name}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the Subnets of a VPC", "vpc", vpc.Name)
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, r.interfaces(ctx, interfaceByNeed, list.Items[i].Name)...)
	}
	return out
}

// holderOf is the interface that has a lease: it may have one too many, or lose one.
func (r *interfaceReconciler) holderOf(_ context.Context, lease *netv1.IPLease) []reconcile.Request {
	return requests(lease.Spec.Interface)
}

// inNeed are the interfaces that need an address of a lease's Subnet: one is free when the lease goes.
func (r *interfaceReconciler) inNeed(ctx context.Context, lease *netv1.IPLease) []reconcile.Request {
	return r.interfaces(ctx, interfaceByNeed, lease.Spec.Subnet)
}
