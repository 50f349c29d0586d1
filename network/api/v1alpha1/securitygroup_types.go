package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// SecurityGroup is a group, of the same namespace; the other side is the interfaces, of the same VPC, that name it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecurityGroup *string `json:"securityGroup,omitempty"`
}

// SecurityGroupSpec is what a SecurityGroup allows.
type SecurityGroupSpec struct {
	// Namespace whose interfaces may name the group.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="namespace cannot be changed; make a new SecurityGroup"
	Namespace string `json:"namespace"`
	// Ingress is what may reach the interfaces that name the group; nothing else may.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Ingress []SecurityGroupRule `json:"ingress,omitempty"`
	// Egress is what these interfaces may send. They may send anything as long as no group that they name has a rule here.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Egress []SecurityGroupRule `json:"egress,omitempty"`
}

// SecurityGroupStatus is how a SecurityGroup is.
type SecurityGroupStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready (every group that a rule names exists), and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SecurityGroup is what may reach the interfaces that name it, and what they may send. What answers passes by itself. A rule
// whose group does not exist allows nothing.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nsg
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SecurityGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SecurityGroupSpec `json:"spec"`
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
