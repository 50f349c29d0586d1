package controller

import (
	"context"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// vpcPeeringReconciler says of VPCPeerings whether they join anything. Nodes read them by themselves; nothing is made for one.
type vpcPeeringReconciler struct {
	client client.Client
	config Config
}

func (r *vpcPeeringReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-vpc-peering").
		For(&netv1.VPCPeering{}).
		// Those the other way round.
		Watches(&netv1.VPCPeering{}, mapped(func(ctx context.Context, p *netv1.VPCPeering) []reconcile.Request {
			return r.of(ctx, p.Spec.Peer)
		})).
		Watches(&netv1.VPC{}, mapped(func(ctx context.Context, vpc *netv1.VPC) []reconcile.Request {
			return append(r.of(ctx, vpc.Name), r.by(ctx, peeringByPeer, vpc.Name)...)
		}), onCreateOrUpdate(vpcChanged)).
		Watches(&netv1.Subnet{}, mapped(func(ctx context.Context, subnet *netv1.Subnet) []reconcile.Request {
			return append(r.of(ctx, subnet.Spec.VPC), r.by(ctx, peeringByPeer, subnet.Spec.VPC)...)
		}), onCreateOrUpdate(subnetChanged)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.config.Workers}).
		Complete(r)
}

func (r *vpcPeeringReconciler) of(ctx context.Context, vpc string) []reconcile.Request {
	return r.by(ctx, peeringByVPC, vpc)
}

func (r *vpcPeeringReconciler) by(ctx context.Context, index, value string) []reconcile.Request {
	var list netv1.VPCPeeringList
	if err := r.client.List(ctx, &list, client.MatchingFields{index: value}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VPCPeerings", index, value)
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, requests(list.Items[i].Name)...)
	}
	return out
}

// Reconcile writes one VPCPeering's status.
func (r *vpcPeeringReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var peering netv1.VPCPeering
	if err := r.client.Get(ctx, req.NamespacedName, &peering); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	result, err := r.judge(ctx, &peering)
	if err != nil {
		return reconcile.Result{}, err
	}
	base := peering.DeepCopy()
	s := &peering.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(&peering, result)
	if equality.Semantic.DeepEqual(base.Status, peering.Status) {
		return reconcile.Result{}, nil
	}
	if err := r.client.Status().Patch(ctx, &peering, optimistic(base)); err != nil {
		return settle(reconcile.Result{}, fmt.Errorf("write the status of VPCPeering %s: %w", peering.Name, err))
	}
	return reconcile.Result{}, nil
}

func (r *vpcPeeringReconciler) judge(ctx context.Context, peering *netv1.VPCPeering) (conditions.Result, error) {
	var back netv1.VPCPeeringList
	if err := r.client.List(ctx, &back, client.MatchingFields{peeringByVPC: peering.Spec.Peer}); err != nil {
		return conditions.Result{}, fmt.Errorf("list the VPCPeerings of VPC %s: %w", peering.Spec.Peer, err)
	}
	if !answered(peering, back.Items) {
		return conditions.Waiting(netv1.ReasonPeerSilent, "waits for a VPCPeering of VPC "+peering.Spec.Peer+" with VPC "+peering.Spec.VPC+"; nothing passes before"), nil
	}
	var subnets [2][]netv1.Subnet
	for i, field := range []struct{ path, name string }{{"spec.vpc", peering.Spec.VPC}, {"spec.peer", peering.Spec.Peer}} {
		var vpc netv1.VPC
		if err := r.client.Get(ctx, client.ObjectKey{Name: field.name}, &vpc); client.IgnoreNotFound(err) != nil {
			return conditions.Result{}, fmt.Errorf("read VPC %s: %w", field.name, err)
		}
		if vpc.Status.ID == 0 {
			return conditions.Waiting(reasonWaitingForVPC, field.path+": VPC "+field.name+" does not exist yet, or has no ID yet"), nil
		}
		var list netv1.SubnetList
		if err := r.client.List(ctx, &list, client.MatchingFields{subnetByVPC: field.name}); err != nil {
			return conditions.Result{}, fmt.Errorf("list the Subnets of VPC %s: %w", field.name, err)
		}
		subnets[i] = list.Items
	}
	if own, theirs, meet := meeting(subnets[0], subnets[1]); meet {
		return conditions.Failed(netv1.ReasonPeerOverlap, "spec.peer: "+theirs.Spec.CIDR+" of Subnet "+theirs.Name+" overlaps "+own.Spec.CIDR+" of Subnet "+own.Name+
			"; neither is in the other VPC's reach: peered VPCs need other ranges"), nil
	}
	return conditions.Ready(reasonReady, "the VPCs are peered"), nil
}

// answered tells whether the peer names the VPC, too.
func answered(peering *netv1.VPCPeering, back []netv1.VPCPeering) bool {
	for i := range back {
		if back[i].Spec.VPC == peering.Spec.Peer && back[i].Spec.Peer == peering.Spec.VPC && back[i].DeletionTimestamp.IsZero() {
			return true
		}
	}
	return false
}

// meeting are Subnets of two VPCs that overlap.
func meeting(own, theirs []netv1.Subnet) (a, b *netv1.Subnet, ok bool) {
	for i := range own {
		x, err := netip.ParsePrefix(own[i].Spec.CIDR)
		if err != nil {
			continue
		}
		for j := range theirs {
			if y, err := netip.ParsePrefix(theirs[j].Spec.CIDR); err == nil && x.Overlaps(y) {
				return &own[i], &theirs[j], true
			}
		}
	}
	return nil, nil, false
}
