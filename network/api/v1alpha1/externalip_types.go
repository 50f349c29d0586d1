package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

// ExternalIPSpec asks for an external address.
type ExternalIPSpec struct {
	// Pool is the name of the AddressPool that the address is taken from.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="pool cannot be changed; make a new ExternalIP"
	Pool string `json:"pool,omitempty"`
	// Address asks for one address of the pool (203.0.113.5); without it any free one is given.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4",message="address must be an IPv4 address such as 203.0.113.5; IPv6 is not supported yet"
	Address string `json:"address,omitempty"`
	// Shared lets every NATGateway that names the ExternalIP have its address at the same time, also those of different VPCs: a PortBlock is
	// one gateway's, so that no two have a port. No FloatingIP gets it. Default false: one has it at a time.
	// +optional
	Shared bool `json:"shared,omitempty"`
}

// ExternalIPUser is what an external address is used by.
type ExternalIPUser struct {
	// Kind is FloatingIP or NATGateway.
	// +kubebuilder:validation:Enum=FloatingIP;NATGateway
	Kind string `json:"kind"`
	// Name of the object.
	Name string `json:"name"`
}

// ExternalIPStatus is how an ExternalIP is.
type ExternalIPStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Address is the external address. It is the ExternalIP's until that is deleted; its IPLease is the lock.
	// +optional
	Address string `json:"address,omitempty"`
	// Pool is the name of the AddressPool that the address was taken from.
	// +optional
	Pool string `json:"pool,omitempty"`
	// UsedBy is the one object that has the address now; absent while none has. Others that name the ExternalIP wait. Of a shared one it is
	// one of those that have the address, or name it.
	// +optional
	UsedBy *ExternalIPUser `json:"usedBy,omitempty"`
	// Conditions: Ready (it has an address), and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ExternalIP is one external address, taken from an AddressPool. While nothing uses it, what is sent to it drops.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=neip
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Used By",type=string,JSONPath=`.status.usedBy.kind`
// +kubebuilder:printcolumn:name="Name of User",type=string,JSONPath=`.status.usedBy.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec.address) == has(oldSelf.spec.address) && (!has(self.spec.address) || self.spec.address == oldSelf.spec.address)",message="spec.address cannot be changed; make a new ExternalIP"
// +kubebuilder:validation:XValidation:rule="(has(self.spec.shared) && self.spec.shared) == (has(oldSelf.spec.shared) && oldSelf.spec.shared)",message="spec.shared cannot be changed; make a new ExternalIP"
type ExternalIP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ExternalIPSpec `json:"spec"`
	// +optional
	Status ExternalIPStatus `json:"status,omitempty"`
}

// ExternalIPList is a list of ExternalIPs.
// +kubebuilder:object:root=true
type ExternalIPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExternalIP `json:"items"`
}
