package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// Indexes of the cache. Those named by a path in spec are selectable fields of the CRD too, so that the same query works
// on the API server itself.
const (
	// subnetByVPC: Subnets by their VPC's name.
	subnetByVPC = "spec.vpc"
	// vpcByNamespace: VPCs by the namespaces whose Pods may be in them.
	vpcByNamespace = "net.mnicloud.jp/namespaces"
	// interfaceBySubnet: NetworkInterfaces by their Subnet's name.
	interfaceBySubnet = "spec.subnet"
	// interfaceByPod: NetworkInterfaces by the UID of the Pod they are attached to, or that they are named by.
	interfaceByPod = "net.mnicloud.jp/pod-uid"
	// interfaceByNeed: NetworkInterfaces that are not Ready, by the Subnets they need an address of.
	interfaceByNeed = "net.mnicloud.jp/needs-subnet"
	// interfaceByNamespace: NetworkInterfaces by their namespace.
	interfaceByNamespace = "spec.namespace"
	// interfaceByGroup: NetworkInterfaces by the SecurityGroups they name.
	interfaceByGroup = "net.mnicloud.jp/security-group"
	// interfaceByAddress: NetworkInterfaces by their VPC's identity and address.
	interfaceByAddress = "net.mnicloud.jp/address"
	// peeringByVPC and peeringByPeer: VPCPeerings by the VPC that agrees, and by its peer.
	peeringByVPC  = "spec.vpc"
	peeringByPeer = "net.mnicloud.jp/peer"
	// tableByVPC: RouteTables by their VPC's name.
	tableByVPC = "spec.vpc"
	// tableByTarget: RouteTables by the names, and addresses, of the NetworkInterfaces and NATGateways that their routes lead to.
	tableByTarget = "net.mnicloud.jp/route-target"
	// subnetByTable: Subnets by the RouteTable they name.
	subnetByTable = "net.mnicloud.jp/route-table"
	// externalIPByPool, externalIPByAddress and externalIPByUser: ExternalIPs by their AddressPool, by their address ("" while they have
	// none), and by the kind and name of who has it.
	externalIPByPool    = "spec.pool"
	externalIPByAddress = "status.address"
	externalIPByUser    = "net.mnicloud.jp/used-by"
	// floatingByExternalIP and floatingByInterface: FloatingIPs by what they name.
	floatingByExternalIP = "spec.externalIP"
	floatingByInterface  = "spec.networkInterface"
	// gatewayByVPC, gatewayBySubnet and gatewayByExternalIP: NATGateways by what they name.
	gatewayByVPC        = "spec.vpc"
	gatewayBySubnet     = "net.mnicloud.jp/subnets"
	gatewayByExternalIP = "net.mnicloud.jp/external-ips"
	// blockByAddress, blockByNode and blockByGateway: PortBlocks by their address, node and NATGateway.
	blockByAddress = "spec.address"
	blockByNode    = "spec.node"
	blockByGateway = "spec.natGateway"
	// groupByPeer: SecurityGroups by the SecurityGroups that their rules name.
	groupByPeer = "net.mnicloud.jp/peer-group"
	// podByInterface: Pods by the name of their NetworkInterface.
	podByInterface = "net.mnicloud.jp/interface"
	// podBySubnet: Pods by the name of their Subnet.
	podBySubnet = "net.mnicloud.jp/subnet"
	// podByPlatform: Pods that ask to be the platform's, by the label's value.
	podByPlatform = "net.mnicloud.jp/platform"
)

// addIndexes registers the indexes.
func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		object client.Object
		field  string
		values client.IndexerFunc
	}{
		{&netv1.Subnet{}, subnetByVPC, value(func(o *netv1.Subnet) string { return o.Spec.VPC })},
		{&netv1.VPC{}, vpcByNamespace, values(func(o *netv1.VPC) []string { return o.Spec.Namespaces })},
		{&netv1.NetworkInterface{}, interfaceBySubnet, value(func(o *netv1.NetworkInterface) string { return o.Spec.Subnet })},
		{&netv1.NetworkInterface{}, interfaceByNamespace, value(func(o *netv1.NetworkInterface) string { return o.Spec.Namespace })},
		{&netv1.NetworkInterface{}, interfaceByPod, values(podUIDs)},
		{&netv1.NetworkInterface{}, interfaceByNeed, values(needs)},
		{&netv1.NetworkInterface{}, interfaceByGroup, values(func(o *netv1.NetworkInterface) []string { return o.Spec.SecurityGroups })},
		{&netv1.NetworkInterface{}, interfaceByAddress, value(func(o *netv1.NetworkInterface) string { return addressIn(o.Status.VPCID, o.Status.Address) })},
		{&netv1.VPCPeering{}, peeringByVPC, value(func(o *netv1.VPCPeering) string { return o.Spec.VPC })},
		{&netv1.VPCPeering{}, peeringByPeer, value(func(o *netv1.VPCPeering) string { return o.Spec.Peer })},
		{&netv1.RouteTable{}, tableByVPC, value(func(o *netv1.RouteTable) string { return o.Spec.VPC })},
		{&netv1.RouteTable{}, tableByTarget, values(targetsOf)},
		{&netv1.Subnet{}, subnetByTable, value(func(o *netv1.Subnet) string { return o.Spec.RouteTable })},
		{&netv1.SecurityGroup{}, groupByPeer, values(peersOf)},
		{&netv1.ExternalIP{}, externalIPByPool, value(func(o *netv1.ExternalIP) string { return o.Spec.Pool })},
		{&netv1.ExternalIP{}, externalIPByAddress, value(func(o *netv1.ExternalIP) string { return o.Status.Address })},
		{&netv1.ExternalIP{}, externalIPByUser, values(usersOf)},
		{&netv1.FloatingIP{}, floatingByExternalIP, value(func(o *netv1.FloatingIP) string { return o.Spec.ExternalIP })},
		{&netv1.FloatingIP{}, floatingByInterface, value(func(o *netv1.FloatingIP) string { return o.Spec.NetworkInterface })},
		{&netv1.NATGateway{}, gatewayByVPC, value(func(o *netv1.NATGateway) string { return o.Spec.VPC })},
		{&netv1.NATGateway{}, gatewayBySubnet, values(func(o *netv1.NATGateway) []string { return o.Spec.Subnets })},
		{&netv1.NATGateway{}, gatewayByExternalIP, values(func(o *netv1.NATGateway) []string { return o.Spec.ExternalIPs })},
		{&netv1.PortBlock{}, blockByAddress, value(func(o *netv1.PortBlock) string { return o.Spec.Address })},
		{&netv1.PortBlock{}, blockByNode, value(func(o *netv1.PortBlock) string { return o.Spec.Node })},
		{&netv1.PortBlock{}, blockByGateway, value(func(o *netv1.PortBlock) string { return o.Spec.NATGateway })},
		{&netv1.IPLease{}, ipam.FieldInterfaceUID, value(func(o *netv1.IPLease) string { return string(o.Spec.InterfaceUID) })},
		{&netv1.IPLease{}, ipam.FieldSubnet, value(func(o *netv1.IPLease) string { return o.Spec.Subnet })},
		{&corev1.Pod{}, podByInterface, values(networkedBy(claim.InterfaceName))},
		{&corev1.Pod{}, podBySubnet, values(networkedBy(claim.SubnetName))},
		{&corev1.Pod{}, podByPlatform, values(func(o *corev1.Pod) []string {
			if !claim.AsksForPlatform(o) {
				return nil
			}
			return []string{netv1.PlatformTrue}
		})},
	} {
		if err := indexer.IndexField(ctx, index.object, index.field, index.values); err != nil {
			return fmt.Errorf("index %T by %s: %w", index.object, index.field, err)
		}
	}
	return nil
}

// values and value make an indexer's function of one that knows its kind.
func values[T client.Object](of func(T) []string) client.IndexerFunc {
	return func(o client.Object) []string {
		t, ok := o.(T)
		if !ok {
			return nil
		}
		return of(t)
	}
}

func value[T client.Object](of func(T) string) client.IndexerFunc {
	return values(func(t T) []string { return []string{of(t)} })
}

// networkedBy leaves out Pods on their hosts' network.
func networkedBy(of func(*corev1.Pod) string) func(*corev1.Pod) []string {
	return func(pod *corev1.Pod) []string {
		if !claim.Networked(pod) {
			return nil
		}
		return []string{of(pod)}
	}
}

// podUIDs are the UIDs of Pods whose life matters to the interface.
func podUIDs(nic *netv1.NetworkInterface) []string {
	var uids []string
	if nic.Spec.Pod != nil {
		uids = append(uids, string(nic.Spec.Pod.UID))
	}
	if nic.Annotations[netv1.AnnotationHolderPod] != "" && (nic.Spec.Pod == nil || string(nic.Spec.Pod.UID) != nic.Name) {
		uids = append(uids, nic.Name)
	}
	return uids
}

// needs are the Subnets that an interface without all of its addresses needs one of.
func needs(nic *netv1.NetworkInterface) []string {
	if meta.IsStatusConditionTrue(nic.Status.Conditions, status.ConditionReady) {
		return nil
	}
	if nic.Spec.Subnet == netv1.DefaultSubnet {
		return []string{netv1.DefaultSubnet}
	}
	return []string{nic.Spec.Subnet, netv1.DefaultSubnet}
}
