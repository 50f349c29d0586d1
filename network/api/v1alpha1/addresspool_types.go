package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

// AddressPoolSpec says which external addresses there are.
type AddressPoolSpec struct {
	// CIDRs are the pool's ranges in canonical form (203.0.113.0/24), IPv4, /8 to /32. No two pools may share an address. A range
	// can be added at any time.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=18
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c) && cidr(c).ip().family() == 4)",message="cidrs must be IPv4 ranges such as 203.0.113.0/24; IPv6 is not supported yet"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !isCIDR(c) || cidr(c) == cidr(c).masked())",message="cidrs must be canonical: no bits set beyond the prefix length (203.0.113.0/24, not 203.0.113.5/24)"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !isCIDR(c) || cidr(c).prefixLength() >= 8)",message="cidrs must be between /8 and /32"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !isCIDR(c) || self.all(d, !isCIDR(d) || c == d || !cidr(c).containsCIDR(d)))",message="cidrs must not contain one another"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !isCIDR(c) || ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '240.0.0.0/4'].all(r, !cidr(r).containsIP(cidr(c).ip()) && !cidr(c).containsIP(cidr(r).ip())))",message="cidrs must be addresses that a host can have: not 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16 or 224.0.0.0/3"
	CIDRs []string `json:"cidrs"`
}

// AddressPoolStatus is how an AddressPool is.
type AddressPoolStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// CIDRs are the ranges that are the pool's: those of spec.cidrs as they last were no other pool's and not reserved. Only they
	// are announced and given out.
	// +optional
	// +listType=set
	CIDRs []string `json:"cidrs,omitempty"`
	// Conditions: Ready, and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AddressPool is external addresses that the cloud may give out. The one named "default" is for those who name none.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pool
// +kubebuilder:printcolumn:name="CIDRs",type=string,JSONPath=`.status.cidrs`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AddressPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AddressPoolSpec `json:"spec"`
	// +optional
	Status AddressPoolStatus `json:"status,omitempty"`
}

// AddressPoolList is a list of AddressPools.
// +kubebuilder:object:root=true
type AddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AddressPool `json:"items"`
}
