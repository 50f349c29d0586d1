package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

// NATGatewaySpec says which Subnets share which external addresses.
type NATGatewaySpec struct {
	// VPC is the name of the VPC that the gateway is of.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self != 'default'",message="the default VPC has no NATGateways: hosts translate for ordinary Pods"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="vpc cannot be changed; make a new NATGateway"
	VPC string `json:"vpc"`
	// Subnets are the names of the VPC's Subnets that the gateway serves; without any it serves all that no other NATGateway names.
	// A Subnet is served by one gateway at a time: by the one that its RouteTable leads to, if it leads to one, whatever is named here.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Subnets []string `json:"subnets,omitempty"`
	// ExternalIPs are the names of the ExternalIPs whose addresses the Subnets share.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ExternalIPs []string `json:"externalIPs"`
}

// NATGatewayStatus is how a NATGateway is. Nodes translate for status.subnets with PortBlocks of status.addresses.
type NATGatewayStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// VPCID is the numeric identity of the VPC.
	// +optional
	VPCID uint32 `json:"vpcID,omitempty"`
	// Addresses are those of spec.externalIPs that the gateway has (203.0.113.5), in that order. Nodes claim PortBlocks of them only,
	// and give those of others back.
	// +optional
	// +listType=set
	Addresses []string `json:"addresses,omitempty"`
	// Subnets are the names of the Subnets that the gateway serves now, sorted.
	// +optional
	// +listType=set
	Subnets []string `json:"subnets,omitempty"`
	// Conditions: Ready (it has all its addresses and serves all Subnets that it names, and every node with workloads of them translates), and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NATGateway lets Subnets open connections out of the cloud, which come from external addresses that they share (source NAT, RFC 3022).
// There is no machine that is the gateway: every node translates for what is on it, with PortBlocks of its own.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nnat
// +kubebuilder:selectablefield:JSONPath=`.spec.vpc`
// +kubebuilder:printcolumn:name="VPC",type=string,JSONPath=`.spec.vpc`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.status.addresses`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NATGateway struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NATGatewaySpec `json:"spec"`
	// +optional
	Status NATGatewayStatus `json:"status,omitempty"`
}

// NATGatewayList is a list of NATGateways.
// +kubebuilder:object:root=true
type NATGatewayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NATGateway `json:"items"`
}
