package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

// VPCPeeringSpec is what one VPC lets in: its peer.
// +kubebuilder:validation:XValidation:rule="self.vpc != self.peer",message="a VPC is not peered with itself; name another in peer"
type VPCPeeringSpec struct {
	// VPC is the name of the VPC that agrees.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self != 'default'",message="the default VPC is peered with none: its Pods are not tenants'"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="vpc cannot be changed; make a new VPCPeering"
	VPC string `json:"vpc"`
	// Peer is the name of the VPC that it agrees to be peered with.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self != 'default'",message="the default VPC is peered with none: its Pods are not tenants'"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="peer cannot be changed; make a new VPCPeering"
	Peer string `json:"peer"`
}

// VPCPeeringStatus is how a VPCPeering is.
type VPCPeeringStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready (there is a VPCPeering the other way round, and no Subnet of the one VPC overlaps one of the other), and while
	// they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VPCPeering is a VPC's agreement to be peered with another. Two VPCs are peered while each has one that names the other: then interfaces
// of either reach those of the other by their own addresses. Nothing is sent on to a third.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=npeering
// +kubebuilder:selectablefield:JSONPath=`.spec.vpc`
// +kubebuilder:printcolumn:name="VPC",type=string,JSONPath=`.spec.vpc`
// +kubebuilder:printcolumn:name="Peer",type=string,JSONPath=`.spec.peer`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VPCPeering struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec VPCPeeringSpec `json:"spec"`
	// +optional
	Status VPCPeeringStatus `json:"status,omitempty"`
}

// VPCPeeringList is a list of VPCPeerings.
// +kubebuilder:object:root=true
type VPCPeeringList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VPCPeering `json:"items"`
}
