package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mnicloud/mnicloud/kit/status"
)

// PodReference is the Pod an interface is attached to.
type PodReference struct {
	// Namespace of the Pod.
	Namespace string `json:"namespace"`
	// Name of the Pod.
	Name string `json:"name"`
	// UID of the Pod. Another Pod of the same name is another holder.
	UID types.UID `json:"uid"`
}

// NetworkInterfaceSpec is what a NetworkInterface should be.
// +kubebuilder:validation:XValidation:rule="!has(self.sourceDestCheck) || self.sourceDestCheck || self.subnet != 'default'",message="sourceDestCheck cannot be false in the default Subnet: every other address there is somebody else's"
type NetworkInterfaceSpec struct {
	// Subnet is the name of the Subnet the interface is in.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="subnet cannot be changed; make a new NetworkInterface"
	Subnet string `json:"subnet"`
	// Namespace that may attach Pods to the interface.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="namespace cannot be changed; make a new NetworkInterface"
	Namespace string `json:"namespace"`
	// Address asks for one address of the Subnet; without it any free one is given.
	// +optional
	Address string `json:"address,omitempty"`
	// Pod is the Pod the interface is attached to. Absent while there is none: the interface then keeps its address for
	// the Subnet's leaseTTL and is deleted, unless it is retained.
	// +optional
	Pod *PodReference `json:"pod,omitempty"`
	// Retain keeps the interface and its addresses, Pod or no Pod, until whoever made it deletes it.
	// +optional
	Retain bool `json:"retain,omitempty"`
	// Node is the node the interface is attached on: the Pod's.
	// +optional
	Node string `json:"node,omitempty"`
	// Platform lets the interface open connections to the infrastructure addresses of interfaces in tenants' VPCs. The network
	// controller sets it for Pods that are labelled as the platform's and may be.
	// +optional
	Platform bool `json:"platform,omitempty"`
	// SourceDestCheck drops what the interface sends from, or is sent to, an address that is not its own. Default true. Where it is
	// false, for a router, firewall or NAT machine that RouteTables lead to, other addresses pass but those that the cloud keeps for itself,
	// and the network namespace of a Pod that is attached from then on forwards (net.ipv4.ip_forward).
	// +optional
	// +kubebuilder:default=true
	SourceDestCheck *bool `json:"sourceDestCheck,omitempty"`
	// SecurityGroups are the names of the SecurityGroups that say what may reach the interface and what it may send; they must be
	// of the interface's namespace. Without any everything in the VPC may. A group that does not exist closes the interface.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	SecurityGroups []string `json:"securityGroups,omitempty"`
}

// NetworkInterfaceStatus is how a NetworkInterface is.
type NetworkInterfaceStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Address is the interface's address in its Subnet (10.0.1.7).
	// +optional
	Address string `json:"address,omitempty"`
	// PrefixLength is the Subnet's (24).
	// +optional
	PrefixLength int32 `json:"prefixLength,omitempty"`
	// GatewayAddress is the Subnet's gateway.
	// +optional
	GatewayAddress string `json:"gatewayAddress,omitempty"`
	// MAC is the interface's MAC address. It stays with the interface.
	// +optional
	MAC string `json:"mac,omitempty"`
	// InfrastructureAddress is the unique address Kubernetes sees as the Pod's (status.podIP). In the default Subnet it is
	// Address itself.
	// +optional
	InfrastructureAddress string `json:"infrastructureAddress,omitempty"`
	// VNI of the Subnet.
	// +optional
	VNI uint32 `json:"vni,omitempty"`
	// VPCID is the numeric identity of the VPC.
	// +optional
	VPCID uint32 `json:"vpcID,omitempty"`
	// ReleasedAt is when the interface's last Pod went; absent while it has one.
	// +optional
	ReleasedAt *metav1.Time `json:"releasedAt,omitempty"`
	// Conditions: Ready (addresses are allocated), SecurityGroupsKnown (when spec.securityGroups names any: whether all of them
	// exist and are of the interface's namespace; otherwise the interface is closed), and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NetworkInterface is one NIC, of a Pod or a virtual machine. Its name is its holder's identity: a Pod's UID, a replica of
// a StatefulSet, or what the Pod's net.mnicloud.jp/interface annotation says.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nic
// +kubebuilder:selectablefield:JSONPath=`.spec.node`
// +kubebuilder:selectablefield:JSONPath=`.spec.subnet`
// +kubebuilder:printcolumn:name="Subnet",type=string,JSONPath=`.spec.subnet`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Infrastructure",type=string,JSONPath=`.status.infrastructureAddress`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.pod.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NetworkInterface struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NetworkInterfaceSpec `json:"spec"`
	// +optional
	Status NetworkInterfaceStatus `json:"status,omitempty"`
}

// NetworkInterfaceList is a list of NetworkInterfaces.
// +kubebuilder:object:root=true
type NetworkInterfaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkInterface `json:"items"`
}
