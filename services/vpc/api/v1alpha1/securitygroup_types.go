package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
)

// RuleProtocol is a protocol that a rule speaks of.
// +kubebuilder:validation:Enum=TCP;UDP;ICMP;Any
type RuleProtocol string

// Protocols that a rule can speak of.
const (
	RuleTCP  RuleProtocol = "TCP"
	RuleUDP  RuleProtocol = "UDP"
	RuleICMP RuleProtocol = "ICMP"
	RuleAny  RuleProtocol = "Any"
)

// SecurityGroupRule allows what it speaks of. Rules only add to each other; none forbids anything.
// +kubebuilder:validation:XValidation:rule="has(self.cidr) != has(self.securityGroup)",message="set exactly one of cidr and securityGroup; 0.0.0.0/0 is everyone"
// +kubebuilder:validation:XValidation:rule="!has(self.port) || self.protocol == 'TCP' || self.protocol == 'UDP'",message="port is only for the protocols TCP and UDP"
// +kubebuilder:validation:XValidation:rule="!has(self.endPort) || has(self.port)",message="endPort needs port"
// +kubebuilder:validation:XValidation:rule="!has(self.endPort) || !has(self.port) || self.endPort >= self.port",message="endPort must not be less than port"
// +kubebuilder:validation:XValidation:rule="!has(self.icmpType) || self.protocol == 'ICMP'",message="icmpType is only for the protocol ICMP"
// +kubebuilder:validation:XValidation:rule="!has(self.icmpCode) || has(self.icmpType)",message="icmpCode needs icmpType"
type SecurityGroupRule struct {
	// Protocol the rule speaks of.
	// +optional
	// +kubebuilder:default=Any
	Protocol RuleProtocol `json:"protocol,omitempty"`
	// Port the rule speaks of, the destination's; without it all. TCP and UDP only.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`
	// EndPort makes a range: the ports from port to endPort.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	EndPort *int32 `json:"endPort,omitempty"`
	// ICMPType is the type of ICMP message (RFC 792) the rule speaks of (8: echo); without it all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ICMPType *int32 `json:"icmpType,omitempty"`
	// ICMPCode is the code of that type; without it all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ICMPCode *int32 `json:"icmpCode,omitempty"`
	// CIDR is the other side's addresses (10.0.1.0/24; 0.0.0.0/0 is everyone).
	// +optional
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="cidr must be an address range such as 10.0.1.0/24"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().family() == 4",message="cidr must be IPv4; IPv6 is not supported yet"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="cidr must be canonical: no bits set beyond the prefix length (10.0.1.0/24, not 10.0.1.5/24)"
	CIDR *string `json:"cidr,omitempty"`
	// SecurityGroup is the name of a SecurityGroup of the same tenant, maybe this one; the other side is what is in that group
	// and in the same Vpc.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="securityGroup must be the name of a SecurityGroup of the same tenant, such as web"
	// +kubebuilder:title="names SecurityGroup.vpc.mnicloud.jp"
	SecurityGroup *string `json:"securityGroup,omitempty"`
}

// SecurityGroupSpec is what a SecurityGroup allows.
type SecurityGroupSpec struct {
	// Description is for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Description string `json:"description,omitempty"`
	// Ingress is what may reach the workloads in the group; nothing else may.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Ingress []SecurityGroupRule `json:"ingress,omitempty"`
	// Egress is what they may send. A workload may send anything as long as no group that it is in has a rule here.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Egress []SecurityGroupRule `json:"egress,omitempty"`
	// DependsOn are resources of the same tenant that must be Ready before this one is made. They stay as long as this one does.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	DependsOn []dependency.Dependency `json:"dependsOn,omitempty"`
}

// SecurityGroupStatus is how a SecurityGroup is.
type SecurityGroupStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready (the network applies it, and every group that a rule names exists), and while they apply Reconciling or Stalled.
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

// SecurityGroup is what may reach the workloads that name it, and what they may send. What answers passes by itself. A workload
// in several groups may do what one of them allows.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=mni,shortName=sg
// +kubebuilder:printcolumn:name="Description",type=string,JSONPath=`.spec.description`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be at most 63 characters and have no dots"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.dependsOn) || !self.spec.dependsOn.exists(d, d.name == self.metadata.name && d.kind in ['SecurityGroup', 'SecurityGroup.vpc', 'SecurityGroup.vpc.mnicloud.jp'])",message="spec.dependsOn must not name the resource itself"
type SecurityGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec SecurityGroupSpec `json:"spec,omitempty"`
	// +optional
	Status SecurityGroupStatus `json:"status,omitempty"`
}

// SecurityGroupList is a list of SecurityGroups.
// +kubebuilder:object:root=true
type SecurityGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SecurityGroup `json:"items"`
}
