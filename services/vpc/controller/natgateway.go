package controller

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// setupNATGateways makes tenants' NATGateways in their Vpcs.
func setupNATGateways(mgr ctrl.Manager, base base, workers int) error {
	p := &projection[*vpcv1.NATGateway]{
		client: base.client, live: base.live, backend: base.backend, kind: backend.NATGateway, empty: func() *vpcv1.NATGateway { return &vpcv1.NATGateway{} },
		status: func(o *vpcv1.NATGateway) conditions.Status {
			return conditions.Status{Phase: &o.Status.Phase, ObservedGeneration: &o.Status.ObservedGeneration, Conditions: &o.Status.Conditions}
		},
		make: base.makeNATGateway, users: base.usersOfNATGateway,
	}
	return p.setup(mgr, "vpc-nat-gateway", workers, func(b *ctrl.Builder) {
		b.Watches(&vpcv1.Vpc{}, handler.EnqueueRequestsFromMapFunc(base.requestGateways(func(nat *vpcv1.NATGateway, o client.Object) bool {
			return nat.Spec.VPC == o.GetName()
		}))).
			Watches(&vpcv1.Subnet{}, handler.EnqueueRequestsFromMapFunc(base.requestGateways(func(nat *vpcv1.NATGateway, o client.Object) bool {
				return slices.Contains(nat.Spec.Subnets, o.GetName())
			})), builder.WithPredicates(otherObject)).
			Watches(&vpcv1.ExternalIP{}, handler.EnqueueRequestsFromMapFunc(base.requestGateways(func(nat *vpcv1.NATGateway, o client.Object) bool {
				return slices.Contains(nat.Spec.ExternalIPs, o.GetName())
			})), builder.WithPredicates(otherObject)).
			// An update asks for the gateways named before and after.
			Watches(&vpcv1.RouteTable{}, handler.EnqueueRequestsFromMapFunc(requestGatewaysOfTable))
	})
}

// requestGatewaysOfTable asks for the NATGateways that a RouteTable leads to: they may wait for it to go.
func requestGatewaysOfTable(_ context.Context, o client.Object) []reconcile.Request {
	table, ok := o.(*vpcv1.RouteTable)
	if !ok {
		return nil
	}
	var requests []reconcile.Request
	for _, name := range gatewaysNamed(table) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: table.Namespace, Name: name}})
	}
	return requests
}

// usersOfNATGateway names the RouteTables that keep a gateway: what leaves by it would drop.
func (b base) usersOfNATGateway(ctx context.Context, nat *vpcv1.NATGateway) (refusal, error) {
	var tables vpcv1.RouteTableList
	if err := b.live.List(ctx, &tables, client.InNamespace(nat.Namespace)); err != nil {
		return nil, fmt.Errorf("list the RouteTables that lead to NATGateway %s: %w", client.ObjectKeyFromObject(nat), err)
	}
	if users := tablesTo(nat, tables.Items); len(users) > 0 {
		return refuse(conditions.Waiting(reasonInUse, "the NATGateway goes when no route leads to it any more: "+some(users))), nil
	}
	return nil, nil
}

// requestGateways asks for the NATGateways of an object's namespace that the object matters to.
func (b base) requestGateways(matters func(*vpcv1.NATGateway, client.Object) bool) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var list vpcv1.NATGatewayList
		if err := b.client.List(ctx, &list, client.InNamespace(o.GetNamespace())); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "list the NATGateways of a namespace", "namespace", o.GetNamespace())
			return nil
		}
		var requests []reconcile.Request
		for i := range list.Items {
			if matters(&list.Items[i], o) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return requests
	}
}

// makeNATGateway makes the gateway. While its Vpc is not there, what was made in one that had the name serves nothing.
func (b base) makeNATGateway(ctx context.Context, nat *vpcv1.NATGateway) (conditions.Result, error) {
	vpc, err := readVPC(ctx, b.client, nat.Namespace, nat.Spec.VPC)
	if err != nil {
		return conditions.Result{}, err
	}
	if no := checkVPCOf("NATGateway", nat.Spec.VPC, vpc); no != nil {
		nat.Status.Addresses, nat.Status.Subnets = nil, nil
		return *no, nil
	}
	named := backend.Named{Subnets: map[string]types.UID{}, ExternalIPs: map[string]types.UID{}}
	for _, name := range nat.Spec.Subnets {
		var subnet vpcv1.Subnet
		err := b.client.Get(ctx, client.ObjectKey{Namespace: nat.Namespace, Name: name}, &subnet)
		if client.IgnoreNotFound(err) != nil {
			return conditions.Result{}, fmt.Errorf("read Subnet %s/%s: %w", nat.Namespace, name, err)
		}
		if err == nil {
			named.Subnets[name] = subnet.UID
		}
	}
	for _, name := range nat.Spec.ExternalIPs {
		uid, err := b.externalIP(ctx, nat.Namespace, name)
		if err != nil {
			return conditions.Result{}, err
		}
		if uid != "" {
			named.ExternalIPs[name] = uid
		}
	}
	return b.backend.EnsureNATGateway(ctx, vpc, nat, named)
}
