package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
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

// vpcReconciler makes tenants' Vpcs, and keeps them while they have Subnets or RouteTables.
type vpcReconciler struct {
	client   client.Client
	live     client.Reader
	backend  backend.Backend
	reserved []netip.Prefix
	// acceptance is held while a Subnet or a RouteTable is accepted into a Vpc, and while a Vpc makes sure that it has none.
	acceptance *sync.Mutex
}

func (r *vpcReconciler) setup(mgr ctrl.Manager, workers int) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("vpc").
		For(&vpcv1.Vpc{}).
		Watches(&vpcv1.Subnet{}, handler.EnqueueRequestsFromMapFunc(requestVPCOf), builder.WithPredicates(onDelete)).
		Watches(&vpcv1.RouteTable{}, handler.EnqueueRequestsFromMapFunc(requestVPCOf), builder.WithPredicates(onDelete)).
		WithOptions(options(workers))
	r.backend.Watch(b, backend.Vpc)
	return b.Complete(r)
}

// Reconcile brings one Vpc towards its spec.
func (r *vpcReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	vpc := &vpcv1.Vpc{}
	if err := r.client.Get(ctx, req.NamespacedName, vpc); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read Vpc %s: %w", req, err)
	}
	if err := r.collect(ctx, req.NamespacedName, vpc.UID); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case vpc.UID == "":
		return reconcile.Result{}, nil
	case !vpc.DeletionTimestamp.IsZero():
		return settle(r.delete(ctx, vpc))
	}
	return settle(r.ensure(ctx, vpc))
}

func (r *vpcReconciler) ensure(ctx context.Context, vpc *vpcv1.Vpc) error {
	if no := dependency.Waits(vpc, vpcv1.Finalizer); no != nil {
		return r.tell(ctx, vpc, *no)
	}
	if no := checkVPC(vpc, r.reserved); no != nil {
		return r.tell(ctx, vpc, *no)
	}
	if err := finalizer.Ensure(ctx, r.client, vpc, vpcv1.Finalizer); err != nil {
		return fmt.Errorf("add the finalizer to Vpc %s: %w", client.ObjectKeyFromObject(vpc), err)
	}
	result, err := r.backend.EnsureVPC(ctx, vpc)
	if err != nil {
		return err
	}
	return r.tell(ctx, vpc, result)
}

// delete lets the Vpc go once it has no Subnets, no RouteTables, and what was made for it is gone.
func (r *vpcReconciler) delete(ctx context.Context, vpc *vpcv1.Vpc) error {
	if no := dependency.Held("Vpc", vpc); no != nil {
		return r.tell(ctx, vpc, *no)
	}
	if !slices.Contains(vpc.Finalizers, vpcv1.Finalizer) {
		if len(vpc.Finalizers) == 0 {
			return nil
		}
		return r.tell(ctx, vpc, conditions.Held(vpc.Finalizers))
	}
	no, err := r.inUse(ctx, vpc)
	if err != nil {
		return err
	}
	if no != nil {
		return r.tell(ctx, vpc, *no)
	}
	gone, err := r.backend.Delete(ctx, backend.Vpc, vpc.UID)
	if err != nil {
		return err
	}
	if !gone {
		return r.tell(ctx, vpc, conditions.Progressing(reasonDeleting, "the network is removing the Vpc"))
	}
	return finalizer.Remove(ctx, r.client, vpc, vpcv1.Finalizer)
}

// inUse tells what keeps the Vpc from going, as the API server knows it now; nil when nothing does.
func (r *vpcReconciler) inUse(ctx context.Context, vpc *vpcv1.Vpc) (refusal, error) {
	r.acceptance.Lock()
	defer r.acceptance.Unlock()
	var subnets vpcv1.SubnetList
	if err := r.live.List(ctx, &subnets, client.InNamespace(vpc.Namespace)); err != nil {
		return nil, fmt.Errorf("list the Subnets of Vpc %s: %w", client.ObjectKeyFromObject(vpc), err)
	}
	if names := subnetsIn(vpc, subnets.Items); len(names) > 0 {
		return refuse(conditions.Waiting(reasonHasSubnets, "the Vpc goes when its Subnets are deleted: "+some(names))), nil
	}
	var tables vpcv1.RouteTableList
	if err := r.live.List(ctx, &tables, client.InNamespace(vpc.Namespace)); err != nil {
		return nil, fmt.Errorf("list the RouteTables of Vpc %s: %w", client.ObjectKeyFromObject(vpc), err)
	}
	if names := tablesIn(vpc, tables.Items); len(names) > 0 {
		return refuse(conditions.Waiting(reasonHasTables, "the Vpc goes when its RouteTables are deleted: "+some(names))), nil
	}
	return nil, nil
}

// collect deletes what was made under the name for Vpcs that are no more: whose finalizer somebody else took away.
func (r *vpcReconciler) collect(ctx context.Context, name types.NamespacedName, current types.UID) error {
	uids, err := r.backend.MadeFor(ctx, backend.Vpc, name)
	if err != nil {
		return err
	}
	return collect(ctx, r.live, name, &vpcv1.Vpc{}, uids, current, remover(r.backend, backend.Vpc))
}

func (r *vpcReconciler) tell(ctx context.Context, vpc *vpcv1.Vpc, result conditions.Result) error {
	before := vpc.DeepCopy()
	s := &vpc.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(vpc, result)
	return apply.Status(ctx, r.client, before, vpc)
}
