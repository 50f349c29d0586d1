package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
)

// VpcPeer is the other Vpc of a peering.
type VpcPeer struct {
	// Tenant is the name of the tenant that the other Vpc is of; without it, it is of the same tenant.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$')",message="tenant must be the name of a tenant, such as acme"
	Tenant string `json:"tenant,omitempty"`
	// VPC is the name that the Vpc has there.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="vpc must be the name of a Vpc, such as main"
	VPC string `json:"vpc"`
}

// VpcPeeringSpec says which Vpc is to be peered with which other.
// +kubebuilder:validation:XValidation:rule="(has(self.peer.tenant) && size(self.peer.tenant) > 0) || self.peer.vpc != self.vpc",message="a Vpc is not peered with itself; name another in peer.vpc, or its tenant in peer.tenant"
type VpcPeeringSpec struct {
	// VPC is the name of the Vpc of the same tenant.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="vpc must be the name of a Vpc of the same tenant, such as main"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="vpc cannot be changed; make a new VpcPeering"
	// +kubebuilder:title="depends on Vpc.vpc.mnicloud.jp"
	VPC string `json:"vpc"`
	// Peer is the other Vpc. The peering begins when its tenant has a VpcPeering the other way round, and ends when either is deleted.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="peer cannot be changed; make a new VpcPeering"
	Peer VpcPeer `json:"peer"`
	// DependsOn are resources of the same tenant that must be Ready before this one is made. They stay as long as this one does.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	DependsOn []dependency.Dependency `json:"dependsOn,omitempty"`
}

// VpcPeeringStatus is how a VpcPeering is.
type VpcPeeringStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// PeerCIDR is the other Vpc's range. Set while both sides agree.
	// +optional
	PeerCIDR string `json:"peerCIDR,omitempty"`
	// AgreedWith is the identity of the tenant that agreed first. Who gets its name later is another tenant, with whom nothing is agreed.
	// +optional
	AgreedWith types.UID `json:"agreedWith,omitempty"`
	// Conditions: Ready (workloads of both Vpcs reach each other, as far as their SecurityGroups let them), and while they apply
	// Reconciling or Stalled.
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

// VpcPeering is one side's agreement to join two Vpcs, whose ranges must not overlap: workloads of either reach those of the other by
// their own addresses. It needs one of the other side, too. What is peered with the other Vpc is not in reach through it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=mni,shortName=peering
// +kubebuilder:printcolumn:name="VPC",type=string,JSONPath=`.spec.vpc`
// +kubebuilder:printcolumn:name="Peer Tenant",type=string,JSONPath=`.spec.peer.tenant`
// +kubebuilder:printcolumn:name="Peer VPC",type=string,JSONPath=`.spec.peer.vpc`
// +kubebuilder:printcolumn:name="Peer CIDR",type=string,JSONPath=`.status.peerCIDR`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be at most 63 characters and have no dots"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.dependsOn) || !self.spec.dependsOn.exists(d, d.name == self.metadata.name && d.kind in ['VpcPeering', 'VpcPeering.vpc', 'VpcPeering.vpc.mnicloud.jp'])",message="spec.dependsOn must not name the resource itself"
type VpcPeering struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec VpcPeeringSpec `json:"spec"`
	// +optional
	Status VpcPeeringStatus `json:"status,omitempty"`
}

// VpcPeeringList is a list of VpcPeerings.
// +kubebuilder:object:root=true
type VpcPeeringList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VpcPeering `json:"items"`
}
