package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
)

// Finalizer is on every object of the group.
const Finalizer = "vpc.mnicloud.jp/cleanup"

// SubnetSpec is what a Subnet should be.
type SubnetSpec struct {
	// VPC is the name of the Vpc, of the same tenant, that the Subnet is in.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="vpc must be the name of a Vpc of the same tenant, such as main"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="vpc cannot be changed; make a new Subnet"
	// +kubebuilder:title="needs Vpc.vpc.mnicloud.jp"
	VPC string `json:"vpc"`
	// CIDR is the Subnet's address range in canonical form (10.0.1.0/24), a part of the Vpc's that meets no other Subnet's;
	// /8 to /30. Its first address is the gateway's.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="cidr must be an address range such as 10.0.1.0/24"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().family() == 4",message="cidr must be IPv4; IPv6 is not supported yet"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="cidr must be canonical: no bits set beyond the prefix length (10.0.1.0/24, not 10.0.1.5/24)"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().family() != 4 || cidr(self).prefixLength() <= 30",message="cidr must be between /8 and /30: smaller ones have no room for a gateway and a workload"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().family() != 4 || cidr(self).prefixLength() >= 8",message="cidr must be between /8 and /30: this one is larger than /8; choose a part of it, such as 10.0.1.0/24"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cidr cannot be changed; make a new Subnet"
	CIDR string `json:"cidr"`
	// RouteTable is the name of a RouteTable of the same Vpc: routes for what workloads send in the Subnet. It can be changed at any
	// time. Without one there are only the routes to the Vpc's other Subnets.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$')",message="routeTable must be the name of a RouteTable of the same tenant, such as inspected"
	// +kubebuilder:title="keeps RouteTable.vpc.mnicloud.jp"
	RouteTable string `json:"routeTable,omitempty"`
	// DependsOn are resources of the same tenant that must be Ready before this one is made. They stay as long as this one does.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	DependsOn []dependency.Dependency `json:"dependsOn,omitempty"`
}

// Attachment is how a workload joins a Subnet, whatever the network backend: other services' controllers copy it onto
// the Pods they make.
type Attachment struct {
	// PodAnnotations put a Pod into the Subnet.
	// +optional
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`
}

// SubnetStatus is how a Subnet is.
type SubnetStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// GatewayAddress is the Subnet's gateway, the first address of its CIDR.
	// +optional
	GatewayAddress string `json:"gatewayAddress,omitempty"`
	// Attachment is how a workload joins the Subnet. Set while the Subnet is Ready.
	// +optional
	Attachment *Attachment `json:"attachment,omitempty"`
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

// Subnet is a part of a Vpc in which workloads have their addresses.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=mni
// +kubebuilder:printcolumn:name="VPC",type=string,JSONPath=`.spec.vpc`
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=`.status.gatewayAddress`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be at most 63 characters and have no dots"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.dependsOn) || !self.spec.dependsOn.exists(d, d.name == self.metadata.name && d.kind in ['Subnet', 'Subnet.vpc', 'Subnet.vpc.mnicloud.jp'])",message="spec.dependsOn must not name the resource itself"
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
