package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

// Route says where packets to a range of addresses go. Exactly one of interface, address, internet, natGateway and blackhole is set.
// +kubebuilder:validation:XValidation:rule="[has(self.interface), has(self.address), has(self.internet), has(self.natGateway), has(self.blackhole)].exists_one(x, x)",message="set exactly one of interface, address, internet, natGateway and blackhole"
// +kubebuilder:validation:XValidation:rule="!has(self.address) || self.destination != self.address + '/32'",message="the route leads to address by address itself: a Subnet's own route leads there already; give another address, or remove the route"
type Route struct {
	// Destination is a range in canonical form (10.9.0.0/16; 0.0.0.0/0 is everything that no other route leads to), IPv4.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="destination must be an address range such as 10.9.0.0/16"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().family() == 4",message="destination must be IPv4; IPv6 is not supported yet"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="destination must be canonical: no bits set beyond the prefix length (10.9.0.0/16, not 10.9.0.5/16)"
	Destination string `json:"destination"`
	// Interface is the name of a NetworkInterface of the VPC whose sourceDestCheck is false.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Interface *string `json:"interface,omitempty"`
	// Address is that of such a NetworkInterface, whichever has it at the time.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4",message="address must be an IPv4 address such as 10.0.1.7"
	Address *string `json:"address,omitempty"`
	// Internet leads out of the cloud: from the external address of the sender's FloatingIP, else through the Subnet's NATGateway. What
	// has neither drops. A Subnet with either has such a route to 0.0.0.0/0 by itself, unless its table has one, or leads to a NATGateway.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self",message="internet must be true; leave it out where the route leads to something else"
	Internet *bool `json:"internet,omitempty"`
	// NATGateway is the name of a NATGateway of the VPC. It leads out of the cloud like internet, by this NATGateway and no other: it
	// serves the Subnets that name the table, and those have no route out but the table's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NATGateway *string `json:"natGateway,omitempty"`
	// Blackhole drops the packets.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self",message="blackhole must be true; leave it out where the route leads to something"
	Blackhole *bool `json:"blackhole,omitempty"`
}

// RouteTableSpec is what a RouteTable should be.
type RouteTableSpec struct {
	// VPC is the name of the VPC that the table is of: Subnets of it may name the table, and routes lead to interfaces in it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self != 'default'",message="the default VPC has no route tables: hosts route for ordinary Pods"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="vpc cannot be changed; make a new RouteTable"
	VPC string `json:"vpc"`
	// Routes, of which the one with the longest prefix counts, the routes to the VPC's other Subnets among them; of two equally long
	// ones the table's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(r, self.exists_one(s, s.destination == r.destination))",message="each destination may stand only once"
	// +kubebuilder:validation:XValidation:rule="self.all(r, !has(r.natGateway) || self.all(s, !has(s.natGateway) || s.natGateway == r.natGateway))",message="the routes of a table lead to one NATGateway, as a Subnet is served by one; name the same in all routes that lead to one"
	Routes []Route `json:"routes,omitempty"`
}

// RouteTableStatus is how a RouteTable is.
type RouteTableStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready (every route leads to what it names), and while they apply Reconciling, Stalled or RoutesLoop (what a next hop sends
	// on comes back to it).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RouteTable is routes for what is sent in the Subnets that name it. A route whose target is not there drops.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nrt
// +kubebuilder:selectablefield:JSONPath=`.spec.vpc`
// +kubebuilder:printcolumn:name="VPC",type=string,JSONPath=`.spec.vpc`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RouteTable struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RouteTableSpec `json:"spec"`
	// +optional
	Status RouteTableStatus `json:"status,omitempty"`
}

// RouteTableList is a list of RouteTables.
// +kubebuilder:object:root=true
type RouteTableList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RouteTable `json:"items"`
}
