package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
)

// NATGatewaySpec says which Subnets share which external addresses.
type NATGatewaySpec struct {
	// VPC is the name of the Vpc, of the same tenant, that the gateway is of.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="vpc must be the name of a Vpc of the same tenant, such as main"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="vpc cannot be changed; make a new NATGateway"
	// +kubebuilder:title="depends on Vpc.vpc.mnicloud.jp"
	VPC string `json:"vpc"`
	// Subnets are the names of the Vpc's Subnets whose workloads may open connections out of the cloud through the gateway; without any
	// all that no other NATGateway names. A Subnet is served by one gateway at a time: by the one that its RouteTable leads to, if it
	// leads to one, whatever is named here.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.all(s, s.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$'))",message="subnets must be names of Subnets of the same tenant, such as app"
	// +kubebuilder:title="names Subnet.vpc.mnicloud.jp"
	Subnets []string `json:"subnets,omitempty"`
	// ExternalIPs are the names of ExternalIPs of the same tenant, whose addresses the Subnets share.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.all(e, e.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$'))",message="externalIPs must be names of ExternalIPs of the same tenant, such as my-eip"
	// +kubebuilder:title="keeps ExternalIP.vpc.mnicloud.jp"
	ExternalIPs []string `json:"externalIPs"`
	// DependsOn are resources of the same tenant that must be Ready before this one is made. They stay as long as this one does.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	DependsOn []dependency.Dependency `json:"dependsOn,omitempty"`
}

// NATGatewayStatus is how a NATGateway is.
type NATGatewayStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Addresses are the external addresses that connections come from.
	// +optional
	// +listType=set
	Addresses []string `json:"addresses,omitempty"`
	// Subnets are the names of the Subnets that the gateway serves now, sorted.
	// +optional
	// +listType=set
	Subnets []string `json:"subnets,omitempty"`
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

// NATGateway lets the workloads of Subnets open connections out of the cloud, which come from external addresses that they share. The
// Subnets' default route (0.0.0.0/0) is made with it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=mni,shortName=nat
// +kubebuilder:printcolumn:name="VPC",type=string,JSONPath=`.spec.vpc`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.status.addresses`
// +kubebuilder:printcolumn:name="Subnets",type=string,JSONPath=`.status.subnets`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be at most 63 characters and have no dots"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.dependsOn) || !self.spec.dependsOn.exists(d, d.name == self.metadata.name && d.kind in ['NATGateway', 'NATGateway.vpc', 'NATGateway.vpc.mnicloud.jp'])",message="spec.dependsOn must not name the resource itself"
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
