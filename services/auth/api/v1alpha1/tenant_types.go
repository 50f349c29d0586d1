package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mnicloud/mnicloud/kit/status"
)

// Role is what a member may do in a Tenant.
// +kubebuilder:validation:Enum=owner;admin;member;viewer
type Role string

// Member of a Tenant.
type Member struct {
	// User is the name of a User.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="user must be the name of a User: lower-case letters, digits and hyphens"
	User string `json:"user"`
	// Role of the User in the Tenant.
	Role Role `json:"role"`
}

// Quota is how much a Tenant may have at once. What is not set has the cloud's default.
type Quota struct {
	// CPU is the sum of what workloads ask for, in processors ("4", "500m").
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// Memory is the sum of what workloads ask for, in bytes ("16Gi").
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
	// Storage is the sum of volumes' sizes, in bytes ("100Gi").
	// +optional
	Storage *resource.Quantity `json:"storage,omitempty"`
	// Workloads is how many Pods there may be.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Workloads *int64 `json:"workloads,omitempty"`
	// VPCs is how many Vpcs there may be.
	// +optional
	// +kubebuilder:validation:Minimum=0
	VPCs *int64 `json:"vpcs,omitempty"`
	// ExternalIPs is how many ExternalIPs there may be.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ExternalIPs *int64 `json:"externalIPs,omitempty"`
	// Objects is how many of each other kind of the cloud's there may be.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Objects *int64 `json:"objects,omitempty"`
}

// TenantSpec is what a Tenant should be.
type TenantSpec struct {
	// DisplayName is the Tenant's name for people, any characters.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	DisplayName string `json:"displayName,omitempty"`
	// Members and their roles. Only an owner says who the owners are.
	// +optional
	// +listType=map
	// +listMapKey=user
	// +kubebuilder:validation:MaxItems=500
	Members []Member `json:"members,omitempty"`
	// Quota is how much the Tenant may have at once. Only the cloud's administrators change it.
	// +optional
	Quota *Quota `json:"quota,omitempty"`
}

// MemberState is how a member is.
// +kubebuilder:validation:Enum=Active;Missing;Replaced
type MemberState string

// States of a member.
const (
	// MemberActive has the rights of its role.
	MemberActive MemberState = "Active"
	// MemberMissing: there is no User of that name.
	MemberMissing MemberState = "Missing"
	// MemberReplaced: the User that was a member was deleted, and another one has its name now, without its rights. Take the
	// member out and put it in again to give them.
	MemberReplaced MemberState = "Replaced"
)

// MemberStatus is how a member is.
type MemberStatus struct {
	// User is the User's name.
	User string `json:"user"`
	// UID of the User that became the member.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// State of the member.
	State MemberState `json:"state"`
}

// TenantStatus is how a Tenant is.
type TenantStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Namespace of the Tenant's resources, a UUID. It is written down before the namespace is made, and deletion goes by it.
	// +optional
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')",message="namespace must be a UUID"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="namespace cannot be changed"
	Namespace string `json:"namespace,omitempty"`
	// Members, by name.
	// +optional
	// +listType=map
	// +listMapKey=user
	Members []MemberStatus `json:"members,omitempty"`
	// Used is how much of each limit of the quota is used.
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`
	// Conditions: Ready, and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Tenant is a company, a team or a person whose resources are isolated from all others'. They live in a namespace of its own.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=mni-admin
// +kubebuilder:printcolumn:name="Display Name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Namespace",type=string,priority=1,JSONPath=`.status.namespace`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be at most 63 characters and have no dots"
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec TenantSpec `json:"spec,omitempty"`
	// +optional
	Status TenantStatus `json:"status,omitempty"`
}

// TenantList is a list of Tenants.
// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tenant `json:"items"`
}

// IsMember says which role the User has in the Tenant, now: the Tenant's spec names the User, and this very User was the member
// when the Tenant was last looked at. A User made anew under the name of a deleted one is somebody else.
func (t *Tenant) IsMember(user string, uid types.UID) (Role, bool) {
	for _, m := range t.Status.Members {
		if m.User != user || m.UID != uid || m.State != MemberActive {
			continue
		}
		for _, now := range t.Spec.Members {
			if now.User == user {
				return now.Role, true
			}
		}
	}
	return "", false
}
