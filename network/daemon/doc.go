// Package daemon is mni-netd, the network of one node: it serves the CNI plugin, keeps the host's links as they should be and
// brings the datapath's maps to what the API objects and the node's own attachments say. In come NetworkInterfaces, Subnets,
// Nodes and Services from the API server and CNI requests from the plugin; out go links, routes, map entries and attached
// programs. What is programmed stays when the daemon stops, and nothing is deleted before the API server has told everything.
//
// Rooms: attachment serves the CNI's commands, host sets up the namespace, desired computes what the maps should hold.
//
// To the API server it writes its PortBlocks alone, the ports by which interfaces leave by NATGateways, while there is a network controller.
// Without one it claims interfaces for new Pods of its own node (network/claim), too. That a node that was broken into can do no more see policies
// (network/config/policy).
//
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=subnets;routetables;vpcpeerings;networkinterfaces;securitygroups;addresspools;floatingips;natgateways;portblocks,verbs=list;watch
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=portblocks,verbs=create;delete
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=vpcs;subnets,verbs=get
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=networkinterfaces,verbs=get;create;patch
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=networkinterfaces/status,verbs=patch
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=ipleases,verbs=get;list;create
// +kubebuilder:rbac:groups="",resources=namespaces;nodes;pods;services,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch
package daemon
