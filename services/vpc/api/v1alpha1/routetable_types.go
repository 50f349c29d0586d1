package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
)

// Route says where packets to a range of addresses go. Exactly one of container, address, internet, natGateway and blackhole is set.
// +kubebuilder:validation:XValidation:rule="[has(self.container), has(self.address), has(self.internet), has(self.natGateway), has(self.blackhole)].exists_one(x, x)",message="set exactly one of container, address, internet, natGateway and blackhole"
// +kubebuilder:validation:XValidation:rule="!has(self.address) || self.destination != self.address + '/32'",message="the route leads to address by address itself: the Subnet's own route leads there already; give another address, or remove the route"
type Route struct {
	// Destination is a range in canonical form (10.9.0.0/16; 0.0.0.0/0 is everything that no other route leads to), IPv4.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="destination must be an address range such as 10.9.0.0/16"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().family() == 4",message="destination must be IPv4; IPv6 is not supported yet"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="destination must be canonical: no bits set beyond the prefix length (10.9.0.0/16, not 10.9.0.5/16)"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().family() != 4 || !['0.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '192.0.2.0/24', '198.18.0.0/15', '224.0.0.0/4', '240.0.0.0/4'].exists(r, cidr(r).containsCIDR(self))",message="destination is in a reserved range (0.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 192.0.2.0/24, 198.18.0.0/15, 224.0.0.0/4 or 240.0.0.0/4), to which no route leads; remove the route"
	Destination string `json:"destination"`
	// Container is the name of a Container of the same tenant, in the same Vpc, that sends on what it gets: its sourceDestCheck is
	// false.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="container must be the name of a Container of the same tenant, such as firewall"
	// +kubebuilder:title="names Container.ctr.mnicloud.jp"
	Container *string `json:"container,omitempty"`
	// Address is that of such a workload, whichever has it at the time.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4",message="address must be an IPv4 address such as 10.0.1.7"
	Address *string `json:"address,omitempty"`
	// Internet leads out of the cloud: from the external address of the sender's FloatingIP, else through the Subnet's NATGateway. What
	// has neither drops. A Subnet with either has such a route to 0.0.0.0/0 by itself, unless its table has one, or leads to a NATGateway.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self",message="internet must be true; leave it out where the route leads to something else"
	Internet *bool `json:"internet,omitempty"`
	// NATGateway is the name of a NATGateway of the same tenant, in the same Vpc. It leads out of the cloud: from the external address of
	// the sender's FloatingIP, else through this NATGateway. No other serves the Subnets that name the table, and they have no route out
	// but those of the table.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="natGateway must be the name of a NATGateway of the same tenant, such as egress"
	// +kubebuilder:title="keeps NATGateway.vpc.mnicloud.jp"
	NATGateway *string `json:"natGateway,omitempty"`
	// Blackhole drops the packets.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self",message="blackhole must be true; leave it out where the route leads to something"
	Blackhole *bool `json:"blackhole,omitempty"`
}

// RouteTableSpec is what a RouteTable should be.
type RouteTableSpec struct {
	// VPC is the name of the Vpc, of the same tenant, that the table is of.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="vpc must be the name of a Vpc of the same tenant, such as main"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="vpc cannot be changed; make a new RouteTable"
	// +kubebuilder:title="needs Vpc.vpc.mnicloud.jp"
	VPC string `json:"vpc"`
	// Routes, each to another destination. The longest prefix counts, the Vpc's own routes to its other Subnets among them; of two
	// equally long ones the table's. Within a Subnet nothing is routed.
	// +optional
	// +listType=map
	// +listMapKey=destination
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(r, !has(r.natGateway) || self.all(s, !has(s.natGateway) || s.natGateway == r.natGateway))",message="the routes of a table lead to one NATGateway, as a Subnet is served by one; name the same in all routes that lead to one"
	Routes []Route `json:"routes,omitempty"`
	// DependsOn are resources of the same tenant that must be Ready before this one is made. They stay as long as this one does.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	DependsOn []dependency.Dependency `json:"dependsOn,omitempty"`
}

// ConditionRoutesLoop on a RouteTable, while it applies: what a workload that a route leads to sends on to the route's destination comes back to it, by
// the routes of its own Subnet, and drops.
const ConditionRoutesLoop = "RoutesLoop"

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
	// Dependencies says how what spec.dependsOn names is. The Dependency Controller writes it.
	// +optional
	Dependencies *dependency.Status `json:"dependencies,omitempty"`
	// Dependents are the resources that need or keep this one, the first ten by age ("Subnet front"). The Dependency Controller writes
	// them.
	// +optional
	// +listType=atomic
	Dependents []string `json:"dependents,omitempty"`
}

// RouteTable is routes for what workloads send in the Subnets that name it. A route whose target is not there drops.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=mni,shortName=rt
// +kubebuilder:printcolumn:name="VPC",type=string,JSONPath=`.spec.vpc`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be at most 63 characters and have no dots"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.dependsOn) || !self.spec.dependsOn.exists(d, d.name == self.metadata.name && d.kind in ['RouteTable', 'RouteTable.vpc', 'RouteTable.vpc.mnicloud.jp'])",message="spec.dependsOn must not name the resource itself"
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
