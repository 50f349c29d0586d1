package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

// BFD is Bidirectional Forwarding Detection (RFC 5880) between a node and a peer.
type BFD struct {
	// IntervalMilliseconds is the time between two control packets, both ways.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=60000
	IntervalMilliseconds int32 `json:"intervalMilliseconds,omitempty"`
	// Multiplier is how many packets in a row must be missing before the peer counts as lost.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=50
	Multiplier int32 `json:"multiplier,omitempty"`
}

// BGPPeerSpec says with which router which nodes speak BGP.
// +kubebuilder:validation:XValidation:rule="!has(self.multihop) || self.multihop == 0 || self.asn != self.localASN",message="multihop is for peers of another ASN; those of the same may be any number of hops away"
type BGPPeerSpec struct {
	// ASN is the peer's autonomous system number, of two or four octets (RFC 6793).
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	// +kubebuilder:validation:XValidation:rule="self != 23456 && self != 65535",message="asn must not be 23456 or 65535, which are reserved (RFC 6793, RFC 7300)"
	ASN int64 `json:"asn"`
	// LocalASN is the cloud's autonomous system number towards this peer.
	// +optional
	// +kubebuilder:default=64512
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	// +kubebuilder:validation:XValidation:rule="self != 23456 && self != 65535",message="localASN must not be 23456 or 65535, which are reserved (RFC 6793, RFC 7300)"
	LocalASN int64 `json:"localASN,omitempty"`
	// Address of the peer, IPv4.
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4",message="address must be an IPv4 address such as 192.0.2.1; IPv6 is not supported yet"
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || (ip(self).isGlobalUnicast() && !cidr('0.0.0.0/8').containsIP(self) && !cidr('240.0.0.0/4').containsIP(self))",message="address must be one that a router can have: not unspecified, loopback, link-local, multicast, broadcast or reserved"
	Address string `json:"address"`
	// Port is the peer's TCP port.
	// +optional
	// +kubebuilder:default=179
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Multihop is how many hops away a peer of another ASN may be; 0 means that it is on a network that the node is on too.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Multihop int32 `json:"multihop,omitempty"`
	// NodeSelector chooses the nodes that speak with the peer by their labels; without it all do.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// PasswordSecret is the name of a Secret in namespace mni-bgp whose key "password" is the sessions' TCP MD5 password (RFC 2385).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PasswordSecret string `json:"passwordSecret,omitempty"`
	// BFD, when set, notices within its intervals that the other side is lost; without it the hold time does.
	// +optional
	BFD *BFD `json:"bfd,omitempty"`
	// HoldTimeSeconds is how long a session lives without a message from the peer (RFC 4271); a third of it is the keepalive time.
	// +optional
	// +kubebuilder:default=90
	// +kubebuilder:validation:Minimum=3
	// +kubebuilder:validation:Maximum=65535
	HoldTimeSeconds int32 `json:"holdTimeSeconds,omitempty"`
	// GracefulRestartSeconds is how long the peer is asked to keep the routes of a node whose speaker restarts (RFC 4724).
	// +optional
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1800
	GracefulRestartSeconds int32 `json:"gracefulRestartSeconds,omitempty"`
}

// BGPSessionState is how a session is.
// +kubebuilder:validation:Enum=Established;Connecting;Refused
type BGPSessionState string

// The states of a session.
const (
	// BGPEstablished: the session is up (RFC 4271), routes are exchanged.
	BGPEstablished BGPSessionState = "Established"
	// BGPConnecting: the node tries again and again.
	BGPConnecting BGPSessionState = "Connecting"
	// BGPRefused: the node does not try, because something of the BGPPeer is not usable.
	BGPRefused BGPSessionState = "Refused"
)

// BGPSession is the session of one node with a peer.
type BGPSession struct {
	// Node that speaks with the peer.
	Node string `json:"node"`
	// State of the session. lastError says why it is not Established.
	State BGPSessionState `json:"state"`
	// Since is when the session came up, or began to try.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// RoutesSent is how many routes are announced to the peer.
	// +optional
	RoutesSent int32 `json:"routesSent,omitempty"`
	// RoutesReceived is how many routes the peer announces, counted up to 1000. Nodes do not use them.
	// +optional
	RoutesReceived int32 `json:"routesReceived,omitempty"`
	// LastError is what went wrong last; it stays until the session has come up.
	// +optional
	LastError string `json:"lastError,omitempty"`
}

// BGPPeerStatus is how a BGPPeer is.
type BGPPeerStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Sessions are the nodes' sessions, each as its node reported it last.
	// +optional
	// +listType=map
	// +listMapKey=node
	Sessions []BGPSession `json:"sessions,omitempty"`
	// Conditions: Ready (every chosen node's session is Established), and while they apply Reconciling or Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BGPPeer is a router to which nodes announce external addresses by BGP (RFC 4271).
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="ASN",type=integer,JSONPath=`.spec.asn`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 50",message="metadata.name must not be longer than 50 characters"
type BGPPeer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec BGPPeerSpec `json:"spec"`
	// +optional
	Status BGPPeerStatus `json:"status,omitempty"`
}

// BGPPeerList is a list of BGPPeers.
// +kubebuilder:object:root=true
type BGPPeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BGPPeer `json:"items"`
}
