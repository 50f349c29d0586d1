// Package controller reconciles ctr.mnicloud.jp Containers. What comes in is what tenants declare and how their Subnets,
// interfaces and Pods are; what goes out is, for each Container, one network interface that keeps its address, one Pod of
// the Container's name, and the Container's status. It imports the VPC service's API, never its controllers.
//
// container.go reads from top to bottom; decide.go chooses the next step and observe.go tells how a Pod is, both pure;
// render.go makes the Pod, node.go tells how its node is.
//
// +kubebuilder:rbac:groups=ctr.mnicloud.jp,resources=containers,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=ctr.mnicloud.jp,resources=containers/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=ctr.mnicloud.jp,resources=containers/finalizers,verbs=update
// +kubebuilder:rbac:groups=vpc.mnicloud.jp,resources=subnets;securitygroups,verbs=get;list;watch
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=networkinterfaces,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=nodes;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
package controller
