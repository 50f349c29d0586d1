package controller

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/apply"
	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// subnetReconciler makes tenants' Subnets in their Vpcs, and keeps them while something has an address in them.
type subnetReconciler struct {
	client     client.Client
	live       client.Reader
	backend    backend.Backend
	acceptance *sync.Mutex
}

func (r *subnetReconciler) setup(mgr ctrl.Manager, workers int) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("vpc-subnet").
		For(&vpcv1.Subnet{}).
		Watches(&vpcv1.Vpc{}, handler.EnqueueRequestsFromMapFunc(r.requestSubnetsOfVPC)).
		Watches(&vpcv1.RouteTable{}, handler.EnqueueRequestsFromMapFunc(r.requestSubnetsOfTable)).
		// A range that becomes free may be what another Subnet waits for.
		Watches(&vpcv1.Subnet{}, handler.EnqueueRequestsFromMapFunc(r.requestSiblings), builder.WithPredicates(onDelete)).
		WithOptions(options(workers))
	r.backend.Watch(b, backend.Subnet)
	return b.Complete(r)
}

// Reconcile brings one Subnet towards its spec.
func (r *subnetReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	subnet := &vpcv1.Subnet{}
	if err := r.client.Get(ctx, req.NamespacedName, subnet); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read Subnet %s: %w", req, err)
	}
	if err := r.collect(ctx, req.NamespacedName, subnet.UID); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case subnet.UID == "":
		return reconcile.Result{}, nil
	case !subnet.DeletionTimestamp.IsZero():
		return settle(r.delete(ctx, subnet))
	}
	return settle(r.ensure(ctx, subnet))
}

func (r *subnetReconciler) ensure(ctx context.Context, subnet *vpcv1.Subnet) error {
	if no := dependency.Waits(subnet, vpcv1.Finalizer); no != nil {
		return r.tell(ctx, subnet, *no, backend.SubnetMade{})
	}
	vpc, err := readVPC(ctx, r.client, subnet.Namespace, subnet.Spec.VPC)
	if err != nil {
		return err
	}
	if no := checkSubnet(subnet, vpc); no != nil {
		return r.tell(ctx, subnet, *no, backend.SubnetMade{})
	}
	if !accepted(subnet) {
		no, err := r.accept(ctx, subnet)
		if err != nil {
			return err
		}
		if no != nil {
			return r.tell(ctx, subnet, *no, backend.SubnetMade{})
		}
	}
	table, no, err := r.tableOf(ctx, subnet)
	if err != nil {
		return err
	}
	made, result, err := r.backend.EnsureSubnet(ctx, vpc, subnet, table)
	if err != nil {
		return err
	}
	if no != nil && result.IsReady() {
		result = *no
	}
	return r.tell(ctx, subnet, result, made)
}

// accept gives the Subnet its range, for good, by putting the finalizer on it. It decides on what the API server says now,
// one Subnet at a time: no two get the same addresses, and none gets into a Vpc that is going.
func (r *subnetReconciler) accept(ctx context.Context, subnet *vpcv1.Subnet) (refusal, error) {
	r.acceptance.Lock()
	defer r.acceptance.Unlock()
	vpc, err := readVPC(ctx, r.live, subnet.Namespace, subnet.Spec.VPC)
	if err != nil {
		return nil, err
	}
	if no := checkSubnet(subnet, vpc); no != nil {
		return no, nil
	}
	var others vpcv1.SubnetList
	if err := r.live.List(ctx, &others, client.InNamespace(subnet.Namespace)); err != nil {
		return nil, fmt.Errorf("list the Subnets of Vpc %s/%s: %w", subnet.Namespace, subnet.Spec.VPC, err)
	}
	if no := checkOverlap(subnet, vpc, others.Items); no != nil {
		return no, nil
	}
	if err := finalizer.Ensure(ctx, r.client, subnet, vpcv1.Finalizer); err != nil {
		return nil, fmt.Errorf("add the finalizer to Subnet %s: %w", client.ObjectKeyFromObject(subnet), err)
	}
	return nil, nil
}

// delete lets the Subnet go once nothing has an address in it and what was made for it is gone.
func (r *subnetReconciler) delete(ctx context.Context, subnet *vpcv1.Subnet) error {
	if no := dependency.Held("Subnet", subnet); no != nil {
		return r.tell(ctx, subnet, *no, backend.SubnetMade{})
	}
	if !accepted(subnet) {
		if len(subnet.Finalizers) == 0 {
			return nil
		}
		return r.tell(ctx, subnet, conditions.Held(subnet.Finalizers), backend.SubnetMade{})
	}
	users, err := r.backend.UsersOfSubnet(ctx, subnet.UID)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return r.tell(ctx, subnet, conditions.Waiting(reasonInUse, "the Subnet goes when what has an address in it is deleted: "+some(users)), backend.SubnetMade{})
	}
	gone, err := r.backend.Delete(ctx, backend.Subnet, subnet.UID)
	if err != nil {
		return err
	}
	if !gone {
		return r.tell(ctx, subnet, conditions.Progressing(reasonDeleting, "the network is removing the Subnet"), backend.SubnetMade{})
	}
	return finalizer.Remove(ctx, r.client, subnet, vpcv1.Finalizer)
}

// collect deletes what was made under the name for Subnets that are no more.
func (r *subnetReconciler) collect(ctx context.Context, name types.NamespacedName, current types.UID) error {
	uids, err := r.backend.MadeFor(ctx, backend.Subnet, name)
	if err != nil {
		return err
	}
	return collect(ctx, r.live, name, &vpcv1.Subnet{}, uids, current, remover(r.backend, backend.Subnet))
}

func (r *subnetReconciler) tell(ctx context.Context, subnet *vpcv1.Subnet, result conditions.Result, made backend.SubnetMade) error {
	before := subnet.DeepCopy()
	s := &subnet.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(subnet, result)
	s.GatewayAddress, s.Attachment = "", nil
	if result.IsReady() {
		s.GatewayAddress, s.Attachment = made.GatewayAddress, made.Attachment
	}
	return apply.Status(ctx, r.client, before, subnet)
}
