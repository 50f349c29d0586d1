package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

// FloatingIPSpec says which interface has which external address.
type FloatingIPSpec struct {
	// ExternalIP is the name of the ExternalIP whose address the interface gets. Only one FloatingIP has an ExternalIP at a time.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="externalIP cannot be changed; make a new FloatingIP"
	ExternalIP string `json:"externalIP"`
	// NetworkInterface is the name of the interface that gets the external address, one in a VPC that is not the default one; only one
	// FloatingIP leads to it at a time. It can be changed at any time. While it is absent, or no such interface exists, what is sent to
	// the external address drops.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NetworkInterface string `json:"networkInterface,omitempty"`
}

// FloatingIPStatus is how a FloatingIP is. Nodes translate while externalAddress, address, vni and vpcID are all set; they are set
// together and absent together.
type FloatingIPStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ExternalAddress is the ExternalIP's address (203.0.113.5).
	// +optional
	ExternalAddress string `json:"externalAddress,omitempty"`
	// VPCID is the numeric identity of the interface's VPC.
	// +optional
	VPCID uint32 `json:"vpcID,omitempty"`
	// VNI of the interface's Subnet.
	// +optional
	VNI uint32 `json:"vni,omitempty"`
	// Address is the interface's address in its Subnet (10.0.1.7).
	// +optional
	Address string `json:"address,omitempty"`
	// Node is the node that the interface is attached on, which announces the external address by itself where a BGPAdvertisement asks
	// for host routes. Absent while the interface is attached nowhere.
	// +optional
	Node string `json:"node,omitempty"`
	// Conditions: Ready (the external address leads to an interface on a node), and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FloatingIP is an external address of one interface, one to one and both ways: what is sent to it arrives at the interface, and what
// the interface sends out of the cloud is from it, also where a NATGateway serves the Subnet.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nfip
// +kubebuilder:selectablefield:JSONPath=`.spec.externalIP`
// +kubebuilder:printcolumn:name="External",type=string,JSONPath=`.status.externalAddress`
// +kubebuilder:printcolumn:name="Interface",type=string,JSONPath=`.spec.networkInterface`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type FloatingIP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec FloatingIPSpec `json:"spec"`
	// +optional
	Status FloatingIPStatus `json:"status,omitempty"`
}

// FloatingIPList is a list of FloatingIPs.
// +kubebuilder:object:root=true
type FloatingIPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FloatingIP `json:"items"`
}
