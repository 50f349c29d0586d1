package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

// Community is a BGP community (RFC 1997): two numbers of 16 bits ("64512:100"), or the name of a well-known one.
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self in ['no-export', 'no-advertise', 'no-export-subconfed'] || (self.matches('^[0-9]{1,5}:[0-9]{1,5}$') && self.split(':').all(n, int(n) <= 65535))",message="a community is two numbers up to 65535 (64512:100), or no-export, no-advertise or no-export-subconfed"
type Community string

// LargeCommunity is a BGP large community (RFC 8092): three numbers of 32 bits ("4200000001:1:2").
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10}$') && self.split(':').all(n, int(n) <= 4294967295)",message="a large community is three numbers up to 4294967295 (4200000001:1:2)"
type LargeCommunity string

// BGPAdvertisementSpec says what is announced to whom. Where several speak of one route to one peer, the route has all their
// communities, the highest of their local preferences and the lowest of their MEDs.
type BGPAdvertisementSpec struct {
	// Pools are the names of the AddressPools that are announced; without any all are.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Pools []string `json:"pools,omitempty"`
	// Peers are the names of the BGPPeers that are told; without any all are.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Peers []string `json:"peers,omitempty"`
	// NodeSelector chooses the nodes that announce by their labels; without it all do.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// HostRoutes announces, beside the pools' ranges, each address in use as a /32 from the node that has its target, so that traffic
	// takes the short way.
	// +optional
	HostRoutes bool `json:"hostRoutes,omitempty"`
	// Communities are attached to the routes (RFC 1997).
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	Communities []Community `json:"communities,omitempty"`
	// LargeCommunities are attached to the routes (RFC 8092).
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	LargeCommunities []LargeCommunity `json:"largeCommunities,omitempty"`
	// LocalPreference of the routes; peers of the cloud's own ASN see it, and prefer higher ones.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LocalPreference *int64 `json:"localPreference,omitempty"`
	// MED is the routes' multi-exit discriminator; peers prefer lower ones.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MED *int64 `json:"med,omitempty"`
}

// BGPAdvertisementStatus is how a BGPAdvertisement is.
type BGPAdvertisementStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready (what it names exists), and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BGPAdvertisement announces AddressPools to BGPPeers.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=bgpadv
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.spec.pools`
// +kubebuilder:printcolumn:name="Peers",type=string,JSONPath=`.spec.peers`
// +kubebuilder:printcolumn:name="HostRoutes",type=boolean,JSONPath=`.spec.hostRoutes`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BGPAdvertisement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec BGPAdvertisementSpec `json:"spec,omitempty"`
	// +optional
	Status BGPAdvertisementStatus `json:"status,omitempty"`
}

// BGPAdvertisementList is a list of BGPAdvertisements.
// +kubebuilder:object:root=true
type BGPAdvertisementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BGPAdvertisement `json:"items"`
}
