package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// IPLeaseSpec says who has an address.
type IPLeaseSpec struct {
	// Subnet is the name of the Subnet the address is of; empty where pool is set.
	Subnet string `json:"subnet"`
	// Pool is the name of the AddressPool that an external address is of.
	// +optional
	Pool string `json:"pool,omitempty"`
	// Address is the leased address.
	Address string `json:"address"`
	// Interface is the name of the NetworkInterface that has the address; where pool is set, of the ExternalIP.
	Interface string `json:"interface"`
	// InterfaceUID is that object's UID: another of the same name is another holder.
	InterfaceUID types.UID `json:"interfaceUID"`
	// ReleasedAt is when the interface gave the address back; absent while it has it. Nobody gets a released address until its
	// quarantine is over and the lease is deleted.
	// +optional
	ReleasedAt *metav1.MicroTime `json:"releasedAt,omitempty"`
}

// IPLease is one address in use, or, for a while, one of the default Subnet or of an AddressPool that was just given back. Its name is
// the Subnet's VNI, 0 for an AddressPool, and the address ("1001.10.0.0.5"), so that the API server's create is the lock. Leases are the only truth about usage.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=iplease
// +kubebuilder:selectablefield:JSONPath=`.spec.subnet`
// +kubebuilder:selectablefield:JSONPath=`.spec.interfaceUID`
// +kubebuilder:printcolumn:name="Subnet",type=string,JSONPath=`.spec.subnet`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="Interface",type=string,JSONPath=`.spec.interface`
// +kubebuilder:printcolumn:name="Released",type=date,JSONPath=`.spec.releasedAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPLease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IPLeaseSpec `json:"spec"`
}

// IPLeaseList is a list of IPLeases.
// +kubebuilder:object:root=true
type IPLeaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPLease `json:"items"`
}
