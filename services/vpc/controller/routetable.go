package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/apply"
	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// routeTableReconciler makes tenants' RouteTables in their Vpcs, and keeps them while Subnets name them.
type routeTableReconciler struct {
	client     client.Client
	live       client.Reader
	backend    backend.Backend
	acceptance *sync.Mutex
}

func (r *routeTableReconciler) setup(mgr ctrl.Manager, workers int) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("vpc-route-table").
		For(&vpcv1.RouteTable{}).
		Watches(&vpcv1.Vpc{}, handler.EnqueueRequestsFromMapFunc(r.requestTablesOfVPC)).
		// An update asks for the tables named before and after.
		Watches(&vpcv1.Subnet{}, handler.EnqueueRequestsFromMapFunc(requestTableOfSubnet)).
		WithOptions(options(workers))
	r.backend.WatchRouteTables(b)
	return b.Complete(r)
}

func (r *routeTableReconciler) requestTablesOfVPC(ctx context.Context, vpc client.Object) []reconcile.Request {
	var list vpcv1.RouteTableList
	if err := r.client.List(ctx, &list, client.InNamespace(vpc.GetNamespace()), client.MatchingFields{tableByVPC: vpc.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the RouteTables of a Vpc", "vpc", vpc.GetName())
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

func requestTableOfSubnet(_ context.Context, o client.Object) []reconcile.Request {
	subnet, ok := o.(*vpcv1.Subnet)
	if !ok || subnet.Spec.RouteTable == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: subnet.Namespace, Name: subnet.Spec.RouteTable}}}
}

// Reconcile brings one RouteTable towards its spec.
func (r *routeTableReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	table := &vpcv1.RouteTable{}
	if err := r.client.Get(ctx, req.NamespacedName, table); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read RouteTable %s: %w", req, err)
	}
	made, err := r.backend.RouteTablesOf(ctx, req.NamespacedName)
	if err == nil {
		err = collect(ctx, r.live, req.NamespacedName, &vpcv1.RouteTable{}, made, table.UID, r.backend.DeleteRouteTable)
	}
	switch {
	case err != nil || table.UID == "":
		return reconcile.Result{}, err
	case !table.DeletionTimestamp.IsZero():
		return settle(r.delete(ctx, table))
	}
	return settle(r.ensure(ctx, table))
}

func (r *routeTableReconciler) ensure(ctx context.Context, table *vpcv1.RouteTable) error {
	vpc, err := readVPC(ctx, r.client, table.Namespace, table.Spec.VPC)
	if err != nil {
		return err
	}
	if no := checkVPCOf("RouteTable", table.Spec.VPC, vpc); no != nil {
		return r.tell(ctx, table, *no)
	}
	if !slices.Contains(table.Finalizers, vpcv1.Finalizer) {
		no, err := r.accept(ctx, table)
		if err != nil {
			return err
		}
		if no != nil {
			return r.tell(ctx, table, *no)
		}
	}
	result, err := r.backend.EnsureRouteTable(ctx, vpc, table)
	if err != nil {
		return err
	}
	if no := checkRoutes(table, vpc); no != nil {
		result = *no
	}
	return r.tell(ctx, table, result)
}

// accept puts the finalizer on the table, unless its Vpc is going by what the API server says now.
func (r *routeTableReconciler) accept(ctx context.Context, table *vpcv1.RouteTable) (refusal, error) {
	r.acceptance.Lock()
	defer r.acceptance.Unlock()
	vpc, err := readVPC(ctx, r.live, table.Namespace, table.Spec.VPC)
	if err != nil {
		return nil, err
	}
	if no := checkVPCOf("RouteTable", table.Spec.VPC, vpc); no != nil {
		return no, nil
	}
	if err := finalizer.Ensure(ctx, r.client, table, vpcv1.Finalizer); err != nil {
		return nil, fmt.Errorf("add the finalizer to RouteTable %s: %w", client.ObjectKeyFromObject(table), err)
	}
	return nil, nil
}

// delete lets the table go once no Subnet names it and what was made for it is gone: what a firewall should see must not find a way
// past it while the table goes.
func (r *routeTableReconciler) delete(ctx context.Context, table *vpcv1.RouteTable) error {
	if !slices.Contains(table.Finalizers, vpcv1.Finalizer) {
		if len(table.Finalizers) == 0 {
			return nil
		}
		return r.tell(ctx, table, conditions.Held(table.Finalizers))
	}
	var subnets vpcv1.SubnetList
	if err := r.live.List(ctx, &subnets, client.InNamespace(table.Namespace)); err != nil {
		return fmt.Errorf("list the Subnets that name RouteTable %s: %w", client.ObjectKeyFromObject(table), err)
	}
	if users := subnetsThatName(table, subnets.Items); len(users) > 0 {
		return r.tell(ctx, table, conditions.Waiting(reasonInUse, "the RouteTable goes when no Subnet names it in spec.routeTable any more: "+some(users)))
	}
	gone, err := r.backend.DeleteRouteTable(ctx, table.UID)
	if err != nil {
		return err
	}
	if !gone {
		return r.tell(ctx, table, conditions.Progressing(reasonDeleting, "the network is removing the RouteTable"))
	}
	return finalizer.Remove(ctx, r.client, table, vpcv1.Finalizer)
}

func (r *routeTableReconciler) tell(ctx context.Context, table *vpcv1.RouteTable, result conditions.Result) error {
	before := table.DeepCopy()
	s := &table.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(table, result)
	return apply.Status(ctx, r.client, before, table)
}

// tableOf finds the RouteTable that a Subnet names. Its UID is "" when there is none that counts, of which the refusal tells.
func (r *subnetReconciler) tableOf(ctx context.Context, subnet *vpcv1.Subnet) (types.UID, refusal, error) {
	if subnet.Spec.RouteTable == "" {
		return "", nil, nil
	}
	table := &vpcv1.RouteTable{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: subnet.Namespace, Name: subnet.Spec.RouteTable}, table)
	if client.IgnoreNotFound(err) != nil {
		return "", nil, fmt.Errorf("read RouteTable %s/%s: %w", subnet.Namespace, subnet.Spec.RouteTable, err)
	}
	if err != nil {
		table = nil
	}
	if no := checkTableOf(subnet, table); no != nil {
		return "", no, nil
	}
	return table.UID, nil, nil
}

// requestSubnetsOfTable asks for the Subnets that name a RouteTable.
func (r *subnetReconciler) requestSubnetsOfTable(ctx context.Context, table client.Object) []reconcile.Request {
	return r.requestSubnetsBy(ctx, table.GetNamespace(), subnetByTable, table.GetName())
}
