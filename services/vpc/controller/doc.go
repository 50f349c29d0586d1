// Package controller reconciles vpc.mnicloud.jp: tenants' Vpcs, Subnets, RouteTables, SecurityGroups, ExternalIPs, FloatingIPs, NATGateways and VpcPeerings. What comes in is what tenants declare; what
// goes out is their status, and what a network backend (services/vpc/backend) makes of them. It decides what a tenant may
// have (ranges, overlaps, order of making and deleting) and knows nothing of the network that does it.
//
// vpc.go and subnet.go read from top to bottom; the other kinds are projections (projection.go), each in a file of its own; decide.go
// holds the decisions, which are pure; peering_decide.go those between two tenants.
//
// +kubebuilder:rbac:groups=vpc.mnicloud.jp,resources=vpcs;subnets;routetables;securitygroups;externalips;floatingips;natgateways;vpcpeerings,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=vpc.mnicloud.jp,resources=vpcs/status;subnets/status;routetables/status;securitygroups/status;externalips/status;floatingips/status;natgateways/status;vpcpeerings/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=vpcs;subnets;routetables;securitygroups;externalips;floatingips;natgateways;vpcpeerings,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=networkinterfaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
package controller
