package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
)

// FloatingIPTargetType is the kind of a workload, as the plural name of its resource.
// +kubebuilder:validation:Enum=containers;virtualMachines
type FloatingIPTargetType string

// The kinds of workloads that a FloatingIP can lead to.
const (
	// TargetContainers: a Container of ctr.mnicloud.jp.
	TargetContainers FloatingIPTargetType = "containers"
	// TargetVirtualMachines: a VirtualMachine of vm.mnicloud.jp.
	TargetVirtualMachines FloatingIPTargetType = "virtualMachines"
)

// FloatingIPTarget is the workload that a FloatingIP leads to.
type FloatingIPTarget struct {
	// Type of the workload: containers or virtualMachines.
	Type FloatingIPTargetType `json:"type"`
	// Name of the workload, of the same tenant.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="name must be the name of a workload of the same tenant, such as web"
	// +kubebuilder:title="names Container.ctr.mnicloud.jp when type is containers, VirtualMachine.vm.mnicloud.jp when type is virtualMachines"
	Name string `json:"name"`
}

// FloatingIPSpec says which workload has which external address.
type FloatingIPSpec struct {
	// ExternalIP is the name of an ExternalIP of the same tenant. Only one FloatingIP has it at a time.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="externalIP must be the name of an ExternalIP of the same tenant, such as my-eip"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="externalIP cannot be changed; make a new FloatingIP"
	// +kubebuilder:title="needs ExternalIP.vpc.mnicloud.jp"
	ExternalIP string `json:"externalIP"`
	// Target is the workload. Only one FloatingIP leads to it at a time. It can be changed at any time, and need not exist yet.
	Target FloatingIPTarget `json:"target"`
	// DependsOn are resources of the same tenant that must be Ready before this one is made. They stay as long as this one does.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	DependsOn []dependency.Dependency `json:"dependsOn,omitempty"`
}

// FloatingIPStatus is how a FloatingIP is.
type FloatingIPStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ExternalAddress is the address at which the workload is reached from outside.
	// +optional
	ExternalAddress string `json:"externalAddress,omitempty"`
	// Address is the workload's in its Subnet.
	// +optional
	Address string `json:"address,omitempty"`
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

// FloatingIP leads an external address to one workload, one to one and both ways: what is sent to the address arrives at the workload,
// and what the workload sends out of the cloud is from it. It follows the workload to other nodes and addresses.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=mni,shortName=fip
// +kubebuilder:printcolumn:name="External",type=string,JSONPath=`.status.externalAddress`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.target.type`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.target.name`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be at most 63 characters and have no dots"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.dependsOn) || !self.spec.dependsOn.exists(d, d.name == self.metadata.name && d.kind in ['FloatingIP', 'FloatingIP.vpc', 'FloatingIP.vpc.mnicloud.jp'])",message="spec.dependsOn must not name the resource itself"
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
