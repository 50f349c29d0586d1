// Package controller reconciles the kinds of net.mnicloud.jp and the Pods that use them. What comes in is VPCs, Subnets,
// NetworkInterfaces and Pods in the API server; what goes out is their statuses, the default network, the interfaces of
// Pods, and IPLeases (made by network/ipam). It touches no node and no kernel: the daemon does.
//
// The reconcilers, each in a file of its name: bootstrap (the default VPC and Subnet), vpc, subnet, pod (which interface a
// Pod has), networkinterface (addresses; attachment's end; release), securitygroup, routetable and vpcpeering (what they name is there), lease (orphans),
// service (keeps kube-proxy off tenants' Services), addresspool (which ranges are whose), bgp (what nodes report of their sessions,
// and what advertisements name).
//
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=vpcs;subnets;networkinterfaces;ipleases,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=securitygroups;routetables;vpcpeerings,verbs=get;list;watch
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=vpcs/status;subnets/status;networkinterfaces/status;securitygroups/status;routetables/status;vpcpeerings/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=addresspools;bgppeers;bgpadvertisements,verbs=get;list;watch
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=externalips;floatingips;natgateways,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=externalips/status;floatingips/status;natgateways/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=portblocks,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=addresspools/status;bgppeers/status;bgpadvertisements/status,verbs=get;update;patch
// +kubebuilder:rbac:groups="",resources=nodes;pods;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
package controller
