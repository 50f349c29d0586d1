package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
)

// ServiceAccountSpec is what a ServiceAccount should be.
type ServiceAccountSpec struct {
	// DisplayName is the ServiceAccount's name for people, any characters.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	DisplayName string `json:"displayName,omitempty"`
	// Role is what the ServiceAccount may do in its Tenant: as much as a member with that role, but it makes no ServiceAccounts and
	// does not say who the members are. Another role counts from the next request on. Nobody gives a role that is mightier than its own.
	// +kubebuilder:validation:Enum=admin;member;viewer
	Role Role `json:"role"`
	// Disabled makes all tokens of the ServiceAccount good for nothing while it is true.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// DependsOn are resources of the same tenant that must be Ready before this one gets tokens. They stay as long as this one does.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	DependsOn []dependency.Dependency `json:"dependsOn,omitempty"`
}

// ServiceAccountStatus is how a ServiceAccount is.
type ServiceAccountStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready (tokens can be made for it), and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Dependencies says how what spec.dependsOn names is. The Dependency Controller writes it.
	// +optional
	Dependencies *dependency.Status `json:"dependencies,omitempty"`
	// Dependents are the resources that need or keep this one, the first ten by age ("Container web"). The Dependency Controller writes
	// them.
	// +optional
	// +listType=atomic
	Dependents []string `json:"dependents,omitempty"`
}

// ServiceAccount is who a program of a Tenant is: a pipeline, a tool, a controller. It comes in by API tokens (POST /tokens), which the
// Tenant's admins and owners make, and which do not hang on the person who made them. It works in its Tenant and nowhere else.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=mni-admin,shortName=sa
// +kubebuilder:printcolumn:name="Display Name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Disabled",type=boolean,JSONPath=`.spec.disabled`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be at most 63 characters and have no dots"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.dependsOn) || !self.spec.dependsOn.exists(d, d.name == self.metadata.name && d.kind in ['ServiceAccount', 'ServiceAccount.auth', 'ServiceAccount.auth.mnicloud.jp'])",message="spec.dependsOn must not name the resource itself"
type ServiceAccount struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ServiceAccountSpec `json:"spec"`
	// +optional
	Status ServiceAccountStatus `json:"status,omitempty"`
}

// ServiceAccountList is a list of ServiceAccounts.
// +kubebuilder:object:root=true
type ServiceAccountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ServiceAccount `json:"items"`
}

// Dependencies implements dependency.Object.
func (a *ServiceAccount) Dependencies() dependency.Declared {
	return dependency.Declared{On: a.Spec.DependsOn, Seen: a.Status.Dependencies, Dependents: a.Status.Dependents}
}
