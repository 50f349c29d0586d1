// Package daemon is mni-netd, the network of one node: it serves the CNI plugin, keeps the host's links as they should be and
// brings the datapath's maps to what the API objects and the node's own attachments say. In come NetworkInterfaces, Subnets,
// Nodes and Services from the API server and CNI requests from the plugin; out go links, routes, map entries and attached
// programs. What is programmed stays when the daemon stops, and nothing is deleted before the API server has told everything.
//
// Rooms: attachment serves the CNI's commands, host sets up the namespace, desired computes what the maps should hold.
//
// It writes nothing to the API server, so a node that was broken into cannot either.
//
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=subnets;routetables;networkinterfaces;securitygroups;addresspools;floatingips;natgateways,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces;nodes;pods;services,verbs=list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch
package daemon
