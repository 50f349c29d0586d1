// Package v1alpha1 is the API group vpc.mnicloud.jp: what a tenant sees of its networks. The VPC Controller projects it onto a network backend.
// All kinds live in a tenant's namespace.
// +kubebuilder:object:generate=true
// +groupName=vpc.mnicloud.jp
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is vpc.mnicloud.jp/v1alpha1.
	GroupVersion = schema.GroupVersion{Group: "vpc.mnicloud.jp", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the group's kinds.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Vpc{}, &VpcList{},
		&Subnet{}, &SubnetList{},
		&SecurityGroup{}, &SecurityGroupList{},
		&RouteTable{}, &RouteTableList{},
		&ExternalIP{}, &ExternalIPList{},
		&FloatingIP{}, &FloatingIPList{},
		&NATGateway{}, &NATGatewayList{},
		&VpcPeering{}, &VpcPeeringList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
