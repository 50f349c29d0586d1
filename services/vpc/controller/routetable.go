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

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// routeTables makes tenants' RouteTables in their Vpcs, and keeps them while Subnets name them.
type routeTables struct {
	*projection[*vpcv1.RouteTable]
	acceptance *sync.Mutex
}

func setupRouteTables(mgr ctrl.Manager, base base, workers int) error {
	r := &routeTables{acceptance: base.acceptance}
	r.projection = &projection[*vpcv1.RouteTable]{
		client: base.client, live: base.live, backend: base.backend, kind: backend.RouteTable, empty: func() *vpcv1.RouteTable { return &vpcv1.RouteTable{} },
		status: func(o *vpcv1.RouteTable) conditions.Status {
			return conditions.Status{Phase: &o.Status.Phase, ObservedGeneration: &o.Status.ObservedGeneration, Conditions: &o.Status.Conditions}
		},
		refuse: r.refuseTable, accept: r.acceptTable, make: r.makeTable, users: r.usersOfTable,
	}
	return r.setup(mgr, "vpc-route-table", workers, func(b *ctrl.Builder) {
		b.Watches(&vpcv1.Vpc{}, handler.EnqueueRequestsFromMapFunc(r.requestTablesOfVPC)).
			// An update asks for the tables named before and after.
			Watches(&vpcv1.Subnet{}, handler.EnqueueRequestsFromMapFunc(requestTableOfSubnet)).
			Watches(&vpcv1.NATGateway{}, handler.EnqueueRequestsFromMapFunc(r.requestTablesToGateway), builder.WithPredicates(otherObject))
	})
}

func (r *routeTables) requestTablesOfVPC(ctx context.Context, vpc client.Object) []reconcile.Request {
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

func (r *routeTables) refuseTable(ctx context.Context, table *vpcv1.RouteTable) (refusal, error) {
	vpc, err := readVPC(ctx, r.client, table.Namespace, table.Spec.VPC)
	if err != nil {
		return nil, err
	}
	return checkVPCOf("RouteTable", table.Spec.VPC, vpc), nil
}

func (r *routeTables) makeTable(ctx context.Context, table *vpcv1.RouteTable) (conditions.Result, error) {
	vpc, err := readVPC(ctx, r.client, table.Namespace, table.Spec.VPC)
	if err != nil {
		return conditions.Result{}, err
	}
	if no := checkVPCOf("RouteTable", table.Spec.VPC, vpc); no != nil {
		return *no, nil
	}
	gateways, err := r.gatewaysOf(ctx, table)
	if err != nil {
		return conditions.Result{}, err
	}
	result, err := r.backend.EnsureRouteTable(ctx, vpc, table, gateways)
	if err != nil {
		return result, err
	}
	if no := checkRoutes(table, vpc); no != nil {
		result = *no
	}
	return result, nil
}

// gatewaysOf finds the NATGateways that a table's routes lead to.
func (r *routeTables) gatewaysOf(ctx context.Context, table *vpcv1.RouteTable) (map[string]types.UID, error) {
	uids := map[string]types.UID{}
	for _, name := range gatewaysNamed(table) {
		var gateway vpcv1.NATGateway
		err := r.client.Get(ctx, client.ObjectKey{Namespace: table.Namespace, Name: name}, &gateway)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read NATGateway %s/%s: %w", table.Namespace, name, err)
		}
		if err == nil {
			uids[name] = gateway.UID
		}
	}
	return uids, nil
}

// requestTablesToGateway asks for the RouteTables that lead to a NATGateway.
func (r *routeTables) requestTablesToGateway(ctx context.Context, gateway client.Object) []reconcile.Request {
	var list vpcv1.RouteTableList
	if err := r.client.List(ctx, &list, client.InNamespace(gateway.GetNamespace()), client.MatchingFields{tableByGateway: gateway.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the RouteTables that lead to a NATGateway", "natGateway", gateway.GetName())
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// acceptTable puts the finalizer on the table, unless its Vpc is going by what the API server says now.
func (r *routeTables) acceptTable(ctx context.Context, table *vpcv1.RouteTable) (refusal, error) {
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

// usersOfTable names the Subnets that keep a table: what a firewall should see must not find a way past it while the table goes.
func (r *routeTables) usersOfTable(ctx context.Context, table *vpcv1.RouteTable) (refusal, error) {
	var subnets vpcv1.SubnetList
	if err := r.live.List(ctx, &subnets, client.InNamespace(table.Namespace)); err != nil {
		return nil, fmt.Errorf("list the Subnets that name RouteTable %s: %w", client.ObjectKeyFromObject(table), err)
	}
	if users := subnetsThatName(table, subnets.Items); len(users) > 0 {
		return refuse(conditions.Waiting(reasonInUse, "the RouteTable goes when no Subnet names it in spec.routeTable any more: "+some(users))), nil
	}
	return nil, nil
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
