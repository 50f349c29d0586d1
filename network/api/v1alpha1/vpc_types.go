package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

// VPCSpec is what a VPC should be.
type VPCSpec struct {
	// Namespaces whose Pods may have interfaces in the VPC's Subnets. A Pod of any other namespace that asks is refused.
	// +optional
	// +listType=set
	Namespaces []string `json:"namespaces,omitempty"`
}

// VPCStatus is how a VPC is.
type VPCStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ID is the VPC's numeric identity in the datapath, unique in the cloud. It is in the key of every map.
	// +optional
	ID uint32 `json:"id,omitempty"`
	// Conditions: Ready, and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VPC is an isolated address space: a container of Subnets. Two VPCs may use the same addresses.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nvpc
// +kubebuilder:printcolumn:name="ID",type=integer,JSONPath=`.status.id`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VPC struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec VPCSpec `json:"spec,omitempty"`
	// +optional
	Status VPCStatus `json:"status,omitempty"`
}

// VPCList is a list of VPCs.
// +kubebuilder:object:root=true
type VPCList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VPC `json:"items"`
}
