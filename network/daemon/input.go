package daemon

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/daemon/desired"
)

// ReadInput lists the API objects that the maps of all nodes depend on. What belongs to one node, its name, address and
// attachments, is left to the caller.
func ReadInput(ctx context.Context, from client.Reader, options ...client.ListOption) (desired.Input, error) {
	var nodes corev1.NodeList
	var subnets netv1.SubnetList
	var tables netv1.RouteTableList
	var interfaces netv1.NetworkInterfaceList
	var peerings netv1.VPCPeeringList
	var pools netv1.AddressPoolList
	var floating netv1.FloatingIPList
	var gateways netv1.NATGatewayList
	var blocks netv1.PortBlockList
	var services corev1.ServiceList
	var slices discoveryv1.EndpointSliceList
	var groups netv1.SecurityGroupList
	var policies networkingv1.NetworkPolicyList
	var pods corev1.PodList
	var namespaces corev1.NamespaceList
	for _, list := range []client.ObjectList{&nodes, &subnets, &tables, &peerings, &interfaces, &services, &slices, &groups, &policies, &pods, &namespaces, &pools, &floating, &gateways, &blocks} {
		if err := from.List(ctx, list, options...); err != nil {
			return desired.Input{}, fmt.Errorf("list %T: %w", list, err)
		}
	}
	return desired.Input{
		Nodes: nodes.Items, Subnets: subnets.Items, RouteTables: tables.Items, VPCPeerings: peerings.Items, Interfaces: interfaces.Items, Services: services.Items, Slices: slices.Items,
		SecurityGroups: groups.Items, NetworkPolicies: policies.Items, Pods: pods.Items, Namespaces: namespaces.Items,
		AddressPools: pools.Items, FloatingIPs: floating.Items, NATGateways: gateways.Items, PortBlocks: blocks.Items,
	}, nil
}
