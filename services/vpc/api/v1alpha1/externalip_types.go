package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
)

// ExternalIPSpec asks for an external address.
type ExternalIPSpec struct {
	// ClassName is the name of the pool of addresses that the address is taken from, as the cloud's owner has named it; without it the
	// default pool.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="className must be the name of a pool of external addresses, such as default"
	ClassName string `json:"className,omitempty"`
	// Address asks for one address of the pool (203.0.113.5); without it any free one is given.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4",message="address must be an IPv4 address such as 203.0.113.5; IPv6 is not supported yet"
	Address string `json:"address,omitempty"`
	// DependsOn are resources of the same tenant that must be Ready before this one is made. They stay as long as this one does.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	DependsOn []dependency.Dependency `json:"dependsOn,omitempty"`
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
	// Address is the external address. It is the ExternalIP's until that is deleted.
	// +optional
	Address string `json:"address,omitempty"`
	// UsedBy is what has the address now; absent while nothing has.
	// +optional
	UsedBy *ExternalIPUser `json:"usedBy,omitempty"`
	// Conditions: Ready, and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Dependencies says how what spec.dependsOn names is. The Dependency Controller writes it.
	// +optional
	Dependencies *dependency.Status `json:"dependencies,omitempty"`
	// Dependents are the resources that need or keep this one, the first ten by age ("Subnet front"). The Dependency Controller writes
	// them.
	// +optional
	// +listType=atomic
	Dependents []string `json:"dependents,omitempty"`
}

// ExternalIP is an address outside the cloud that is the tenant's until it is deleted. A FloatingIP leads it to a workload; a
// NATGateway lets Subnets share it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=mni,shortName=eip
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Used By",type=string,JSONPath=`.status.usedBy.kind`
// +kubebuilder:printcolumn:name="Name of User",type=string,JSONPath=`.status.usedBy.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be at most 63 characters and have no dots"
// +kubebuilder:validation:XValidation:rule="has(self.spec.className) == has(oldSelf.spec.className) && (!has(self.spec.className) || self.spec.className == oldSelf.spec.className)",message="spec.className cannot be changed; make a new ExternalIP"
// +kubebuilder:validation:XValidation:rule="has(self.spec.address) == has(oldSelf.spec.address) && (!has(self.spec.address) || self.spec.address == oldSelf.spec.address)",message="spec.address cannot be changed; make a new ExternalIP"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.dependsOn) || !self.spec.dependsOn.exists(d, d.name == self.metadata.name && d.kind in ['ExternalIP', 'ExternalIP.vpc', 'ExternalIP.vpc.mnicloud.jp'])",message="spec.dependsOn must not name the resource itself"
type ExternalIP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	Spec ExternalIPSpec `json:"spec,omitempty"`
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
