package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

// UserSpec is what a User should be.
//
// What is refused must not be repeated: messages go to the audit log. So the rule for the password stands here, where the message has
// no value, and not at the field; and the field takes numbers as far as here, as server-side apply would repeat them.
// +kubebuilder:validation:XValidation:rule="!has(self.password) || (type(self.password) == string && self.password.matches('^[$]2[aby][$]1[0-4][$][./A-Za-z0-9]{53}$'))",fieldPath=".password",message="was not hashed: the cloud's password webhook did not see it, so nothing was stored; ask the cloud's administrator whether mni-cloud runs, then try again"
type UserSpec struct {
	// DisplayName is the User's name for people, any characters.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	DisplayName string `json:"displayName,omitempty"`
	// Password is written in plain text, 8 to 72 bytes in UTF-8, and stored as its bcrypt hash: the API server has it hashed before
	// it stores, logs or shows it. Writing the same password again leaves the hash as it is. A bcrypt hash ($2a$, $2b$ or $2y$, cost
	// 10 to 14) is stored as it is. A User without one cannot log in by password. A number is text only in quotes.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Type=""
	// +kubebuilder:validation:MaxLength=1024
	Password string `json:"password,omitempty"`
	// MustChangePassword lets the User do nothing but change the password until that is done.
	// +optional
	MustChangePassword bool `json:"mustChangePassword,omitempty"`
	// Administrator makes the User an administrator of the cloud, with every right.
	// +optional
	Administrator bool `json:"administrator,omitempty"`
	// Disabled ends the User's sessions and API tokens, and lets nobody log in, while it is true.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
}

// TenantOfUser is a Tenant that a User is a member of.
type TenantOfUser struct {
	// Name of the Tenant.
	Name string `json:"name"`
	// Role of the User in it.
	Role Role `json:"role"`
}

// LoginStatus is how logging in by password went. The session service writes it.
type LoginStatus struct {
	// Failures is how many tries in a row had the wrong password.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// LockedUntil is when the next try is listened to. Absent when the User is not locked out.
	// +optional
	LockedUntil *metav1.Time `json:"lockedUntil,omitempty"`
}

// UserStatus is how a User is.
type UserStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Tenants that the User is a member of, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Tenants []TenantOfUser `json:"tenants,omitempty"`
	// Login is how logging in went.
	// +optional
	Login LoginStatus `json:"login,omitempty"`
	// Conditions: Ready, and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// User is somebody who uses the cloud.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=mni-admin
// +kubebuilder:printcolumn:name="Display Name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="Administrator",type=boolean,JSONPath=`.spec.administrator`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be at most 63 characters and have no dots"
type User struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec UserSpec `json:"spec,omitempty"`
	// +optional
	Status UserStatus `json:"status,omitempty"`
}

// UserList is a list of Users.
// +kubebuilder:object:root=true
type UserList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []User `json:"items"`
}
