package netbackend

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/apply"
	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// noInterface begins the name of the interface of a Container that has none: a name that no object can have. The route stays, and
// drops.
const noInterface = "missing/"

// EnsureRouteTable implements backend.Backend.
func (b *Backend) EnsureRouteTable(ctx context.Context, vpc *vpcv1.Vpc, table *vpcv1.RouteTable, gateways map[string]types.UID) (conditions.Result, error) {
	live := &netv1.RouteTable{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: string(table.UID)}, live); client.IgnoreNotFound(err) != nil {
		return conditions.Result{}, fmt.Errorf("read the network's RouteTable: %w", err)
	}
	if !live.DeletionTimestamp.IsZero() {
		return remaking("RouteTable", table.Name), nil
	}
	routes, names, err := b.routes(ctx, table, gateways)
	if err != nil {
		return conditions.Result{}, err
	}
	desired := &netv1.RouteTable{ObjectMeta: metadata(table), Spec: netv1.RouteTableSpec{VPC: string(vpc.UID), Routes: routes}}
	if err := apply.Object(ctx, b.client, FieldOwner, live, desired); err != nil {
		return refused(err)
	}
	result := resultOf("the RouteTable", live, live.Status.Conditions, strings.NewReplacer(append(names, string(vpc.UID), vpc.Name)...))
	if ready := readyOf(live.Status.Conditions); ready != nil && ready.Reason == netv1.ReasonRouteTarget && ready.ObservedGeneration == live.Generation {
		result = conditions.Waiting(ready.Reason, strings.NewReplacer(names...).Replace(ready.Message))
	}
	if loops := meta.FindStatusCondition(live.Status.Conditions, netv1.ConditionRoutesLoop); loops != nil {
		conditions.Set(table, &table.Status.Conditions, vpcv1.ConditionRoutesLoop, loops.Status, loops.Reason,
			strings.NewReplacer(append(names, "interface", "workload")...).Replace(loops.Message))
	} else {
		meta.RemoveStatusCondition(&table.Status.Conditions, vpcv1.ConditionRoutesLoop)
	}
	return result, nil
}

// routes are the network's, with pairs of what the network calls their targets and what the tenant does.
func (b *Backend) routes(ctx context.Context, table *vpcv1.RouteTable, gateways map[string]types.UID) (routes []netv1.Route, names []string, err error) {
	for _, r := range table.Spec.Routes {
		route := netv1.Route{Destination: r.Destination, Address: r.Address, Internet: r.Internet, Blackhole: r.Blackhole}
		var nics []netv1.NetworkInterface
		switch {
		case r.NATGateway != nil:
			name := noObject + *r.NATGateway
			if uid, ok := gateways[*r.NATGateway]; ok {
				name = string(uid)
			}
			route.NATGateway = &name
			names = append(names, "NATGateway "+name, "NATGateway "+*r.NATGateway)
		case r.Container != nil:
			nics, err = b.interfaces(ctx, interfaceByContainer, table.Namespace, *r.Container)
			name := noInterface + *r.Container
			if len(nics) > 0 {
				name = nics[0].Name
			}
			route.Interface = &name
			names = append(names, "NetworkInterface "+name, "Container "+*r.Container)
		case r.Address != nil:
			nics, err = b.interfaces(ctx, interfaceByAddress, table.Namespace, *r.Address)
			for i := range nics {
				names = append(names, "NetworkInterface "+nics[i].Name, userOf(&nics[i]))
			}
		}
		if err != nil {
			return nil, nil, err
		}
		routes = append(routes, route)
	}
	return routes, names, nil
}

// interfaces of a tenant that an index finds, without those that are going.
func (b *Backend) interfaces(ctx context.Context, index, namespace, value string) ([]netv1.NetworkInterface, error) {
	var list netv1.NetworkInterfaceList
	if err := b.client.List(ctx, &list, client.MatchingFields{index: namespace + "/" + value}); err != nil {
		return nil, fmt.Errorf("list the interfaces by %s: %w", index, err)
	}
	var staying []netv1.NetworkInterface
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp.IsZero() {
			staying = append(staying, list.Items[i])
		}
	}
	return staying, nil
}

// containerOf is the Container, with its namespace, that an interface was made for.
func containerOf(nic *netv1.NetworkInterface) []string {
	name := nic.Labels[ctrv1.LabelContainer]
	if name == "" || nic.Labels[ctrv1.LabelNamespace] != nic.Spec.Namespace {
		return nil
	}
	return []string{nic.Spec.Namespace + "/" + name}
}

// requestTablesOfInterface asks for the tenant's RouteTables that lead to the Container of an interface.
func (b *Backend) requestTablesOfInterface(ctx context.Context, o client.Object) []reconcile.Request {
	nic, ok := o.(*netv1.NetworkInterface)
	if !ok {
		return nil
	}
	var requests []reconcile.Request
	for _, container := range containerOf(nic) {
		var list vpcv1.RouteTableList
		if err := b.client.List(ctx, &list, client.MatchingFields{tableByContainer: container}); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "list the RouteTables that lead to a Container", "container", container)
		}
		for i := range list.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// containersOf are the Containers, with their namespace, that a table's routes lead to.
func containersOf(table *vpcv1.RouteTable) []string {
	var names []string
	for _, route := range table.Spec.Routes {
		if route.Container != nil {
			names = append(names, table.Namespace+"/"+*route.Container)
		}
	}
	return names
}
