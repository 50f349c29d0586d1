// Package v1alpha1 is the API of the network, net.mnicloud.jp: cluster-scoped objects that the owner of the cloud, or a
// service such as the VPC Controller, writes. Tenants never do. It also stands alone as the API of a Kubernetes CNI.
// +kubebuilder:object:generate=true
// +groupName=net.mnicloud.jp
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is net.mnicloud.jp/v1alpha1.
	GroupVersion = schema.GroupVersion{Group: "net.mnicloud.jp", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the group's kinds.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&VPC{}, &VPCList{},
		&Subnet{}, &SubnetList{},
		&SecurityGroup{}, &SecurityGroupList{},
		&RouteTable{}, &RouteTableList{},
		&NetworkInterface{}, &NetworkInterfaceList{},
		&IPLease{}, &IPLeaseList{},
		&AddressPool{}, &AddressPoolList{},
		&ExternalIP{}, &ExternalIPList{},
		&FloatingIP{}, &FloatingIPList{},
		&NATGateway{}, &NATGatewayList{},
		&VPCPeering{}, &VPCPeeringList{},
		&PortBlock{}, &PortBlockList{},
		&BGPPeer{}, &BGPPeerList{},
		&BGPAdvertisement{}, &BGPAdvertisementList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
