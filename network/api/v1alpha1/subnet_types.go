package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

// SubnetSpec is what a Subnet should be.
type SubnetSpec struct {
	// VPC is the name of the VPC the Subnet is in.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="vpc cannot be changed; make a new Subnet"
	VPC string `json:"vpc"`
	// CIDR is the Subnet's address range in canonical form (10.0.1.0/24), IPv4, /8 to /30. Its first address is the gateway's.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="cidr must be an address range such as 10.0.1.0/24"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().family() == 4",message="cidr must be IPv4; IPv6 is not supported yet"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="cidr must be canonical: no bits set beyond the prefix length (10.0.1.0/24, not 10.0.1.5/24)"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().family() != 4 || cidr(self).prefixLength() <= 30",message="cidr must be between /8 and /30: smaller ones have no room for a gateway and an interface"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().family() != 4 || cidr(self).prefixLength() >= 8",message="cidr must be between /8 and /30: this one is larger than /8; choose a part of it, such as 10.0.1.0/24"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cidr cannot be changed; make a new Subnet"
	CIDR string `json:"cidr"`
	// RouteTable is the name of a RouteTable of the same VPC: routes for what is sent in the Subnet. Without one there are only those to
	// the VPC's other Subnets.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RouteTable string `json:"routeTable,omitempty"`
	// LeaseTTL is how long a released address is kept for the interface that had it before anyone may have it.
	// +optional
	// +kubebuilder:default="10m"
	LeaseTTL *metav1.Duration `json:"leaseTTL,omitempty"`
}

// SubnetStatus is how a Subnet is.
type SubnetStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// VNI is the Subnet's VXLAN Network Identifier (RFC 7348), unique in the cloud.
	// +optional
	VNI uint32 `json:"vni,omitempty"`
	// VPCID is the numeric identity of the Subnet's VPC.
	// +optional
	VPCID uint32 `json:"vpcID,omitempty"`
	// GatewayAddress is the first address of the CIDR; the datapath answers for it.
	// +optional
	GatewayAddress string `json:"gatewayAddress,omitempty"`
	// GatewayMAC is the gateway's MAC address, random and locally administered.
	// +optional
	GatewayMAC string `json:"gatewayMAC,omitempty"`
	// Conditions: Ready, RouteTableKnown (when spec.routeTable names one: whether it exists and is of the same VPC; otherwise it is
	// as if none were named), and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Subnet is an address range in a VPC with a VXLAN Network Identifier of its own. Addresses in use are its IPLeases; it
// keeps no counters.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nsubnet
// +kubebuilder:selectablefield:JSONPath=`.spec.vpc`
// +kubebuilder:printcolumn:name="VPC",type=string,JSONPath=`.spec.vpc`
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="VNI",type=integer,JSONPath=`.status.vni`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Subnet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SubnetSpec `json:"spec"`
	// +optional
	Status SubnetStatus `json:"status,omitempty"`
}

// SubnetList is a list of Subnets.
// +kubebuilder:object:root=true
type SubnetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Subnet `json:"items"`
}
