package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PortBlockSpec says which node translates with which ports.
type PortBlockSpec struct {
	// Address is the external address (203.0.113.5).
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4",message="address must be an IPv4 address such as 203.0.113.5"
	Address string `json:"address"`
	// FirstPort of the block, a multiple of its size. Ports below 1024 are in none.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:XValidation:rule="self % 512 == 0",message="firstPort must be a multiple of 512, the size of all blocks"
	FirstPort int32 `json:"firstPort"`
	// Size is how many ports the block has. All have the same, so that no two share a port.
	// +kubebuilder:validation:XValidation:rule="self == 512",message="size must be 512"
	Size int32 `json:"size"`
	// Node that translates with the ports; return traffic is sent there.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// NATGateway is the name of the NATGateway that the node translates for.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NATGateway string `json:"natGateway"`
	// ReleasedAt is when the controller took the ports from a node that is lost or does not exist any more; absent while the node has them.
	// The node, if it hears of that, translates with them no more and deletes the PortBlock. Nobody gets released ports before that, or
	// before the longest flow that it may still have would have ended.
	// +optional
	ReleasedAt *metav1.MicroTime `json:"releasedAt,omitempty"`
}

// PortBlock is ports of an external address, of TCP, UDP and as identifiers of ICMP echo, with which one node translates for one
// NATGateway. Nodes make and delete theirs by themselves. Its name is the address and the first port ("203.0.113.5.1024"), so that the API
// server's create is the lock; it never changes, but for being released.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:selectablefield:JSONPath=`.spec.address`
// +kubebuilder:selectablefield:JSONPath=`.spec.node`
// +kubebuilder:selectablefield:JSONPath=`.spec.natGateway`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="First Port",type=integer,JSONPath=`.spec.firstPort`
// +kubebuilder:printcolumn:name="Size",type=integer,JSONPath=`.spec.size`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name="NAT Gateway",type=string,JSONPath=`.spec.natGateway`
// +kubebuilder:printcolumn:name="Released",type=date,JSONPath=`.spec.releasedAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec.address == oldSelf.spec.address && self.spec.firstPort == oldSelf.spec.firstPort && self.spec.size == oldSelf.spec.size && self.spec.node == oldSelf.spec.node && self.spec.natGateway == oldSelf.spec.natGateway",message="spec cannot be changed; delete the PortBlock and make another"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec.releasedAt) || has(self.spec.releasedAt) && self.spec.releasedAt == oldSelf.spec.releasedAt",message="spec.releasedAt cannot be changed: what was released stays so; delete the PortBlock"
type PortBlock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PortBlockSpec `json:"spec"`
}

// PortBlockList is a list of PortBlocks.
// +kubebuilder:object:root=true
type PortBlockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PortBlock `json:"items"`
}
