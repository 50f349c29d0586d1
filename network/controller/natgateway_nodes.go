package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// lacking are the nodes, sorted, that have interfaces in the Subnets and no ports of the gateway: what those interfaces send drops. Nodes that
// are not Ready do not count: their workloads are to be elsewhere.
func (r *natGatewayReconciler) lacking(ctx context.Context, gateway string, subnets []string) ([]string, error) {
	has, err := r.translating(ctx, gateway)
	if err != nil {
		return nil, err
	}
	var lacking []string
	seen := map[string]bool{}
	for _, subnet := range subnets {
		var nics netv1.NetworkInterfaceList
		if err := r.client.List(ctx, &nics, client.MatchingFields{interfaceBySubnet: subnet}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list the interfaces of Subnet %s: %w", subnet, err)
		}
		for i := range nics.Items {
			nic := &nics.Items[i]
			if nic.Spec.Node == "" || nic.Spec.Pod == nil || nic.Status.VNI == 0 || has[nic.Spec.Node] || seen[nic.Spec.Node] {
				continue
			}
			seen[nic.Spec.Node] = true
			var node corev1.Node
			err := r.client.Get(ctx, client.ObjectKey{Name: nic.Spec.Node}, &node)
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("read Node %s: %w", nic.Spec.Node, err)
			}
			if err == nil && nodeReady(&node) {
				lacking = append(lacking, node.Name)
			}
		}
	}
	slices.Sort(lacking)
	return lacking, nil
}

// translating are the nodes that have ports of a gateway.
func (r *natGatewayReconciler) translating(ctx context.Context, gateway string) (map[string]bool, error) {
	var blocks netv1.PortBlockList
	if err := r.client.List(ctx, &blocks, client.MatchingFields{blockByGateway: gateway}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the PortBlocks of NATGateway %s: %w", gateway, err)
	}
	has := map[string]bool{}
	for i := range blocks.Items {
		if blocks.Items[i].Spec.ReleasedAt == nil {
			has[blocks.Items[i].Spec.Node] = true
		}
	}
	return has, nil
}

// resultOfNodes sums up a gateway that has all it asks for.
func resultOfNodes(lacking []string) conditions.Result {
	if len(lacking) > 0 {
		return conditions.Progressing(reasonClaimingPorts, "these nodes have workloads of the Subnets and are claiming ports of the addresses: "+nameSome(lacking)+
			"; if it lasts, every port is taken: give the NATGateway another ExternalIP")
	}
	return conditions.Ready(reasonTranslating, "the gateway has its addresses and Subnets, and every node with workloads of them translates")
}

// ofInterface asks for the gateway of an interface's Subnet when the interface's node has no ports of it, or the gateway waits for some.
func (r *natGatewayReconciler) ofInterface(ctx context.Context, nic *netv1.NetworkInterface) []reconcile.Request {
	if nic.Spec.Node == "" || nic.Status.VPCID == 0 || nic.Status.VPCID == netv1.DefaultVPCID {
		return nil
	}
	var gateways netv1.NATGatewayList
	if err := r.client.List(ctx, &gateways, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the NATGateways")
		return nil
	}
	var out []reconcile.Request
	for i := range gateways.Items {
		g := &gateways.Items[i]
		if g.Status.VPCID != nic.Status.VPCID || !slices.Contains(g.Status.Subnets, nic.Spec.Subnet) {
			continue
		}
		has, err := r.translating(ctx, g.Name)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "which nodes translate", "natGateway", g.Name)
		}
		if !has[nic.Spec.Node] {
			out = append(out, requests(g.Name)...)
		}
	}
	return out
}

// placeChanged tells whether an interface's update may change which nodes need ports.
func placeChanged(before, after *netv1.NetworkInterface) bool {
	return before.Spec.Node != after.Spec.Node || (before.Spec.Pod == nil) != (after.Spec.Pod == nil) || before.Status.VNI != after.Status.VNI
}

// readinessChanged tells whether a node became Ready or is no longer.
func readinessChanged(before, after *corev1.Node) bool { return nodeReady(before) != nodeReady(after) }

// all are all gateways.
func (r *natGatewayReconciler) all(ctx context.Context) []reconcile.Request {
	var gateways netv1.NATGatewayList
	if err := r.client.List(ctx, &gateways, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the NATGateways")
	}
	out := make([]reconcile.Request, 0, len(gateways.Items))
	for i := range gateways.Items {
		out = append(out, requests(gateways.Items[i].Name)...)
	}
	return out
}
