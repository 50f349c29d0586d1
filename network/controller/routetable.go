package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/routing"
)

// routeTableReconciler says of RouteTables whether each route leads to what it names. Nodes read the tables by themselves; nothing is
// made for one, so that none waits for this.
type routeTableReconciler struct {
	client client.Client
	config Config
}

func (r *routeTableReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-route-table").
		For(&netv1.RouteTable{}).
		Watches(&netv1.VPC{}, mapped(func(ctx context.Context, vpc *netv1.VPC) []reconcile.Request {
			return r.tables(ctx, tableByVPC, vpc.Name)
		}), onCreateOrUpdate(vpcChanged)).
		// An update asks for the tables that lead to the interface before and after.
		Watches(&netv1.NetworkInterface{}, mapped(func(ctx context.Context, nic *netv1.NetworkInterface) []reconcile.Request {
			tables := append(r.tables(ctx, tableByTarget, nic.Name), r.tables(ctx, tableByTarget, nic.Status.Address)...)
			if len(tables) > 0 { // others of the VPC may lead in a circle over it
				tables = append(tables, r.tables(ctx, tableByVPC, nic.Labels[netv1.LabelVPC])...)
			}
			return tables
		}), onCreateOrUpdate(targetChanged)).
		Watches(&netv1.NATGateway{}, mapped(func(ctx context.Context, gateway *netv1.NATGateway) []reconcile.Request {
			return r.tables(ctx, tableByTarget, gateway.Name)
		}), onCreateOrUpdate(gatewayTargetChanged)).
		// By the table of one Subnet a route of another one's may become, or be no more, part of a circle.
		Watches(&netv1.Subnet{}, mapped(func(ctx context.Context, subnet *netv1.Subnet) []reconcile.Request {
			return r.tables(ctx, tableByVPC, subnet.Spec.VPC)
		}), onUpdate(func(before, after *netv1.Subnet) bool {
			return before.Spec.RouteTable != after.Spec.RouteTable || after.Spec.RouteTable != "" && before.Status.VNI != after.Status.VNI
		})).
		Watches(&netv1.RouteTable{}, mapped(r.neighbours), onCreateOrUpdate(func(before, after *netv1.RouteTable) bool {
			return before.Generation != after.Generation
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.config.Workers}).
		Complete(r)
}

// targetChanged tells whether an interface is another next hop than before.
func targetChanged(before, after *netv1.NetworkInterface) bool {
	return before.UID != after.UID || before.Status.Address != after.Status.Address || before.Status.VPCID != after.Status.VPCID ||
		!equality.Semantic.DeepEqual(before.Spec.SourceDestCheck, after.Spec.SourceDestCheck)
}

// gatewayTargetChanged tells whether routes lead to a NATGateway otherwise than before.
func gatewayTargetChanged(before, after *netv1.NATGateway) bool {
	return before.UID != after.UID || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		(len(before.Status.Addresses) == 0) != (len(after.Status.Addresses) == 0)
}

func (r *routeTableReconciler) tables(ctx context.Context, index, value string) []reconcile.Request {
	var list netv1.RouteTableList
	if err := r.client.List(ctx, &list, client.MatchingFields{index: value}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list RouteTables", index, value)
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, requests(list.Items[i].Name)...)
	}
	return out
}

// neighbours are the tables of a VPC, if a Subnet names the given one.
func (r *routeTableReconciler) neighbours(ctx context.Context, table *netv1.RouteTable) []reconcile.Request {
	var list netv1.SubnetList
	if err := r.client.List(ctx, &list, client.MatchingFields{subnetByTable: table.Name}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the Subnets of a RouteTable", "table", table.Name)
	}
	if len(list.Items) == 0 {
		return nil
	}
	return r.tables(ctx, tableByVPC, table.Spec.VPC)
}

// targetsOf are the names, and addresses, that a table's routes lead to.
func targetsOf(table *netv1.RouteTable) []string {
	var targets []string
	for _, route := range table.Spec.Routes {
		if route.Interface != nil {
			targets = append(targets, *route.Interface)
		}
		if route.Address != nil {
			targets = append(targets, *route.Address)
		}
		if route.NATGateway != nil {
			targets = append(targets, *route.NATGateway)
		}
	}
	return targets
}

// addressIn is an interface's address with its VPC's identity, which together are unique.
func addressIn(vpcID uint32, address string) string {
	return strconv.FormatUint(uint64(vpcID), 10) + "/" + address
}

// Reconcile writes one RouteTable's status.
func (r *routeTableReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var table netv1.RouteTable
	if err := r.client.Get(ctx, req.NamespacedName, &table); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	result, loops, err := r.judge(ctx, &table)
	if err != nil {
		return reconcile.Result{}, err
	}
	base := table.DeepCopy()
	s := &table.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(&table, result)
	if len(loops) > 0 {
		conditions.Set(&table, &s.Conditions, netv1.ConditionRoutesLoop, metav1.ConditionTrue, reasonRouteLoop, someOf(loops))
	} else {
		meta.RemoveStatusCondition(&s.Conditions, netv1.ConditionRoutesLoop)
	}
	if equality.Semantic.DeepEqual(base.Status, table.Status) {
		return reconcile.Result{}, nil
	}
	if err := r.client.Status().Patch(ctx, &table, optimistic(base)); err != nil {
		return settle(reconcile.Result{}, fmt.Errorf("write the status of RouteTable %s: %w", table.Name, err))
	}
	return reconcile.Result{}, nil
}

// judge says how a table is, and which of its routes are part of a circle.
func (r *routeTableReconciler) judge(ctx context.Context, table *netv1.RouteTable) (conditions.Result, []string, error) {
	var vpc netv1.VPC
	if err := r.client.Get(ctx, client.ObjectKey{Name: table.Spec.VPC}, &vpc); client.IgnoreNotFound(err) != nil {
		return conditions.Result{}, nil, fmt.Errorf("read VPC %s: %w", table.Spec.VPC, err)
	}
	if vpc.Status.ID == 0 {
		return conditions.Waiting(reasonWaitingForVPC, "spec.vpc: VPC "+table.Spec.VPC+" does not exist yet, or has no ID yet"), nil, nil
	}
	targets, err := r.targets(ctx, table, vpc.Status.ID)
	if err != nil {
		return conditions.Result{}, nil, err
	}
	_, problems := routing.Resolve(&table.Spec, vpc.Status.ID, targets, r.config.ReservedCIDRs)
	loops, err := r.loops(ctx, table, vpc.Status.ID)
	return resultOfRoutes(problems), loops, err
}

// loops reads what a table's ways lead over, as far as they lead.
func (r *routeTableReconciler) loops(ctx context.Context, table *netv1.RouteTable, vpcID uint32) ([]string, error) {
	if !slices.ContainsFunc(table.Spec.Routes, func(r netv1.Route) bool { return r.Interface != nil || r.Address != nil }) {
		return nil, nil
	}
	var subnets netv1.SubnetList
	if err := r.client.List(ctx, &subnets, client.MatchingFields{subnetByVPC: table.Spec.VPC}); err != nil {
		return nil, fmt.Errorf("list the Subnets of VPC %s: %w", table.Spec.VPC, err)
	}
	var failed error
	tables := map[string]*netv1.RouteTable{table.Name: table}
	problems := routing.Loops(table, routing.Neighbourhood{
		VPCID: vpcID, Subnets: subnets.Items,
		Table: func(name string) *netv1.RouteTable {
			if _, known := tables[name]; !known {
				other := &netv1.RouteTable{}
				if err := r.client.Get(ctx, client.ObjectKey{Name: name}, other); err != nil {
					failed = errors.Join(failed, client.IgnoreNotFound(err))
					other = nil
				}
				tables[name] = other
			}
			return tables[name]
		},
		Hop: func(route *netv1.Route) *netv1.NetworkInterface {
			found, err := r.hops(ctx, route, vpcID)
			failed = errors.Join(failed, err)
			if len(found) == 0 {
				return nil
			}
			return &found[0]
		},
	})
	return problems, failed
}

// hops are the interfaces that a route names, or whose address it names.
func (r *routeTableReconciler) hops(ctx context.Context, route *netv1.Route, vpcID uint32) ([]netv1.NetworkInterface, error) {
	switch {
	case route.Interface != nil:
		var nic netv1.NetworkInterface
		if err := r.client.Get(ctx, client.ObjectKey{Name: *route.Interface}, &nic); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("read NetworkInterface %s: %w", *route.Interface, err)
			}
			return nil, nil
		}
		return []netv1.NetworkInterface{nic}, nil
	case route.Address != nil:
		var list netv1.NetworkInterfaceList
		if err := r.client.List(ctx, &list, client.MatchingFields{interfaceByAddress: addressIn(vpcID, *route.Address)}); err != nil {
			return nil, fmt.Errorf("find the NetworkInterface that has %s: %w", *route.Address, err)
		}
		slices.SortFunc(list.Items, func(a, b netv1.NetworkInterface) int { return strings.Compare(a.Name, b.Name) })
		return list.Items, nil
	}
	return nil, nil
}

// targets reads what the routes lead to.
func (r *routeTableReconciler) targets(ctx context.Context, table *netv1.RouteTable, vpcID uint32) (routing.Targets, error) {
	var found []netv1.NetworkInterface
	var gateways []netv1.NATGateway
	for i := range table.Spec.Routes {
		hops, err := r.hops(ctx, &table.Spec.Routes[i], vpcID)
		if err != nil {
			return routing.Targets{}, err
		}
		found = append(found, hops...)
	}
	if name := routing.Gateway(&table.Spec); name != "" {
		var gateway netv1.NATGateway
		err := r.client.Get(ctx, client.ObjectKey{Name: name}, &gateway)
		if client.IgnoreNotFound(err) != nil {
			return routing.Targets{}, fmt.Errorf("read NATGateway %s: %w", name, err)
		}
		if err == nil {
			gateways = append(gateways, gateway)
		}
	}
	return routing.Index(found, gateways), nil
}

// resultOfRoutes sums up what is wrong: first what only a change of the table helps.
func resultOfRoutes(problems []routing.Problem) conditions.Result {
	if len(problems) == 0 {
		return conditions.Ready(reasonReady, "every route leads to what it names")
	}
	var final, others []string
	for _, p := range problems {
		if p.Final {
			final = append(final, p.Message)
		} else {
			others = append(others, p.Message)
		}
	}
	if len(final) > 0 {
		return conditions.Failed(reasonRouteInvalid, someOf(append(final, others...)))
	}
	return conditions.Waiting(netv1.ReasonRouteTarget, someOf(others))
}

// someOf joins at most three sentences, and says how many more there are.
func someOf(sentences []string) string {
	const most = 3
	if len(sentences) <= most {
		return strings.Join(sentences, "; ")
	}
	return strings.Join(sentences[:most], "; ") + "; and " + strconv.Itoa(len(sentences)-most) + " more routes"
}

// routeTable sets a Subnet's condition about the RouteTable that it names.
func (r *subnetReconciler) routeTable(ctx context.Context, subnet *netv1.Subnet, s *netv1.SubnetStatus) error {
	name := subnet.Spec.RouteTable
	if name == "" {
		meta.RemoveStatusCondition(&s.Conditions, netv1.ConditionRouteTableKnown)
		return nil
	}
	var table netv1.RouteTable
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, &table)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read RouteTable %s: %w", name, err)
	}
	set := func(value metav1.ConditionStatus, reason, message string) {
		conditions.Set(subnet, &s.Conditions, netv1.ConditionRouteTableKnown, value, reason, message)
	}
	switch {
	case err != nil:
		set(metav1.ConditionFalse, reasonTableNotFound, "spec.routeTable: RouteTable "+name+" does not exist; create it, or name another")
	case table.Spec.VPC != subnet.Spec.VPC:
		set(metav1.ConditionFalse, reasonTableForeign, "spec.routeTable: RouteTable "+name+" is of VPC "+table.Spec.VPC+", the Subnet is in "+subnet.Spec.VPC+"; name one of the same VPC")
	default:
		set(metav1.ConditionTrue, reasonReady, "the table's routes count")
	}
	return nil
}

// ofTable are the Subnets that name a RouteTable.
func (r *subnetReconciler) ofTable(ctx context.Context, table *netv1.RouteTable) []reconcile.Request {
	var list netv1.SubnetList
	if err := r.client.List(ctx, &list, client.MatchingFields{subnetByTable: table.Name}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the Subnets of a RouteTable", "table", table.Name)
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, requests(list.Items[i].Name)...)
	}
	return out
}
