// Package dns is mni-dns, the resolver of one node: what tenants' workloads ask at 169.254.0.53, in whatever VPC they are. In come
// VPCs, NetworkInterfaces, Services and EndpointSlices from the API server, and questions whose source is the infrastructure
// address of who asks (the datapath sees to that); out go the names of that VPC, and for the rest of the world what the
// machine's resolvers say. It is CoreDNS with a plugin of its own before cache and forward.
//
// What it knows is kept in a file, so that it answers after a restart while the API server is away. Nothing else is written, and
// nothing that it keeps of outside names tells one VPC from another.
//
// Rooms: names decides, in pure functions, what is known and answered.
//
// +kubebuilder:rbac:groups="",resources=services,verbs=list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=vpcs;networkinterfaces,verbs=list;watch
package dns
