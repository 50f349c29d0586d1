package controller

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// vpcReconciler gives VPCs their numeric identities and keeps them while they have Subnets.
type vpcReconciler struct {
	client client.Client
	live   client.Reader
	ids    *sequence
}

func (r *vpcReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-vpc").
		For(&netv1.VPC{}).
		Watches(&netv1.Subnet{}, mapped(func(_ context.Context, s *netv1.Subnet) []reconcile.Request { return requests(s.Spec.VPC) })).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}

// Reconcile brings one VPC towards its spec.
func (r *vpcReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var vpc netv1.VPC
	if err := r.client.Get(ctx, req.NamespacedName, &vpc); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !vpc.DeletionTimestamp.IsZero() {
		return settle(reconcile.Result{}, r.finalize(ctx, &vpc))
	}
	return settle(reconcile.Result{}, r.provision(ctx, &vpc))
}

func (r *vpcReconciler) provision(ctx context.Context, vpc *netv1.VPC) error {
	if err := finalizer.Ensure(ctx, r.client, vpc, netv1.Finalizer); err != nil {
		return fmt.Errorf("add the finalizer to VPC %s: %w", vpc.Name, err)
	}
	id := vpc.Status.ID
	switch {
	case vpc.Name == netv1.DefaultVPC:
		id = netv1.DefaultVPCID
	case id == 0:
		var err error
		if id, err = r.ids.next(ctx); err != nil {
			return fmt.Errorf("give VPC %s an ID: %w", vpc.Name, err)
		}
	}
	return r.write(ctx, vpc, id, conditions.Ready(reasonReady, "the VPC has its identity"))
}

// finalize lets the VPC go once no Subnet is in it.
func (r *vpcReconciler) finalize(ctx context.Context, vpc *netv1.VPC) error {
	if !controllerutil.ContainsFinalizer(vpc, netv1.Finalizer) {
		return nil
	}
	var subnets netv1.SubnetList
	if err := r.live.List(ctx, &subnets, client.MatchingFields{subnetByVPC: vpc.Name}); err != nil {
		return fmt.Errorf("list the Subnets of VPC %s: %w", vpc.Name, err)
	}
	if len(subnets.Items) > 0 {
		var names []string
		for i := range subnets.Items {
			names = append(names, subnets.Items[i].Name)
		}
		slices.Sort(names)
		return r.write(ctx, vpc, vpc.Status.ID, conditions.Waiting(reasonWaitingForSubnets,
			"the VPC goes when its Subnets are deleted: "+nameSome(names)))
	}
	return finalizer.Remove(ctx, r.client, vpc, netv1.Finalizer)
}

func (r *vpcReconciler) write(ctx context.Context, vpc *netv1.VPC, id uint32, o conditions.Result) error {
	base := vpc.DeepCopy()
	vpc.Status.ID = id
	conditions.Status{Phase: &vpc.Status.Phase, ObservedGeneration: &vpc.Status.ObservedGeneration, Conditions: &vpc.Status.Conditions}.Apply(vpc, o)
	if equality.Semantic.DeepEqual(base.Status, vpc.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, vpc, optimistic(base)); err != nil {
		return fmt.Errorf("write the status of VPC %s: %w", vpc.Name, err)
	}
	return nil
}
