package v1alpha1

// The default network: the VPC and the Subnet of ordinary Pods, whose addresses are the infrastructure addresses that
// Kubernetes sees. The controller makes both from its configuration.
const (
	// DefaultVPC is the name of the VPC of ordinary Pods.
	DefaultVPC = "default"
	// DefaultSubnet is the name of the Subnet of ordinary Pods. Tenants' Pods take their infrastructure addresses from it.
	DefaultSubnet = "default"
	// DefaultVNI is the default Subnet's VXLAN Network Identifier.
	DefaultVNI uint32 = 1
	// DefaultVPCID is the default VPC's numeric identity in the datapath.
	DefaultVPCID uint32 = 1
	// OutsideVNI is no Subnet's: nodes send to each other in it what is for external addresses, untranslated.
	OutsideVNI uint32 = 2
	// FirstTenantVNI is the first VNI (and VPC ID) given to other Subnets (and VPCs).
	FirstTenantVNI uint32 = 1001
	// MaxVNI is the largest VXLAN Network Identifier, 24 bits (RFC 7348).
	MaxVNI uint32 = 1<<24 - 1
)

// ResolverAddress is where every VPC finds its resolver, on each node: link-local, and the same in all of them.
const ResolverAddress = "169.254.0.53"

// LabelDNSName on a VPC or a NetworkInterface is its part of a name: the interface web of the VPC shop is web.shop.internal to the
// interfaces of that VPC. Who makes the object sets it. Without it a VPC has its own name, and an interface that of its Pod.
const LabelDNSName = "net.mnicloud.jp/dns-name"

// Annotations on Pods, read by the network controller.
const (
	// AnnotationSubnet on a Pod names the net.mnicloud.jp Subnet its interface is in; without it the Pod is in the default
	// Subnet. Honoured only when the Subnet's VPC lists the Pod's namespace.
	AnnotationSubnet = "net.mnicloud.jp/subnet"
	// AnnotationInterface on a Pod names its NetworkInterface; without it the name is the Pod's UID, or, for a StatefulSet's, made
	// of the namespace, the StatefulSet's UID and the replica's number. A controller that
	// replaces Pods gives all of them the same interface name (say, its object's UID), and with it one address and MAC.
	// An existing NetworkInterface is honoured only when its namespace is the Pod's.
	AnnotationInterface = "net.mnicloud.jp/interface"
	// AnnotationAddress on a Pod asks for a fixed address in its Subnet.
	AnnotationAddress = "net.mnicloud.jp/address"
)

// AnnotationHolder on a NetworkInterface says, for people, what has it, in the words of whoever made it ("Container web-0").
const AnnotationHolder = "net.mnicloud.jp/holder"

// Annotations that the network controller sets.
const (
	// AnnotationHolderPod on a NetworkInterface named by its Pod's UID: the Pod's namespace and name ("team-a/web-0"). No
	// other Pod can ever take the interface, so it goes with that Pod.
	AnnotationHolderPod = "net.mnicloud.jp/holder-pod"
	// AnnotationLastVPCID on the default VPC: the highest VPC ID given so far, so that IDs are not reused soon.
	AnnotationLastVPCID = "net.mnicloud.jp/last-vpc-id"
	// AnnotationLastVNI on the default VPC: the highest VNI given so far, so that VNIs are not reused soon.
	AnnotationLastVNI = "net.mnicloud.jp/last-vni"
)

// LabelPlatform with the value PlatformTrue on a Pod makes it one of the platform's: it may open connections to the
// infrastructure addresses of Pods in tenants' VPCs (monitoring does). Its namespace must be labelled the same, which only the
// cloud's owner can do, and be in no VPC's spec.namespaces; the Pod must be in the default Subnet. What the labels say counts
// when the Pod gets its interface.
const (
	LabelPlatform = "net.mnicloud.jp/platform"
	PlatformTrue  = "true"
)

// LabelServiceProxy is Kubernetes' label on Services that kube-proxy leaves to another. The network controller sets it to
// ServiceProxy on the Services of tenants' namespaces, which balance within VPCs only and must be no way in from a host.
const (
	LabelServiceProxy = "service.kubernetes.io/service-proxy-name"
	ServiceProxy      = "net.mnicloud.jp"
)

// Labels that the network controller sets.
const (
	// LabelVPC on Subnets, NetworkInterfaces and IPLeases: the name of the VPC.
	LabelVPC = "net.mnicloud.jp/vpc"
	// LabelSubnet on NetworkInterfaces and IPLeases: the name of the Subnet.
	LabelSubnet = "net.mnicloud.jp/subnet"
	// LabelNode on NetworkInterfaces: the node they are attached on.
	LabelNode = "net.mnicloud.jp/node"
)

// ConditionSecurityGroupsKnown on a NetworkInterface that names SecurityGroups: all of them exist and are of its namespace.
const ConditionSecurityGroupsKnown = "SecurityGroupsKnown"

// ConditionRouteTableKnown on a Subnet that names a RouteTable: it exists and is of the Subnet's VPC.
const ConditionRouteTableKnown = "RouteTableKnown"

// ConditionRoutesLoop on a RouteTable, while it applies: what an interface that a route leads to sends on to the route's destination comes back to
// it, by the routes of its own Subnet, and drops.
const ConditionRoutesLoop = "RoutesLoop"

// ReasonRouteTarget is the reason why a RouteTable is not Ready when what one of its routes leads to is not there yet, or checks
// addresses. Such a route drops.
const ReasonRouteTarget = "RouteTargetMissing"

// Reasons why a VPCPeering is not Ready.
const (
	// ReasonPeerSilent: the peer names the VPC in no VPCPeering of its own.
	ReasonPeerSilent = "WaitingForPeer"
	// ReasonPeerOverlap: Subnets of the two VPCs overlap. None of those is in reach of the other.
	ReasonPeerOverlap = "SubnetsOverlap"
)

// Finalizer is on every object of the group that has something to clean up.
const Finalizer = "net.mnicloud.jp/cleanup"

// FieldOwner is the field manager of the network controller.
const FieldOwner = "net.mnicloud.jp/controller"

// DefaultAddressPool is the name of the AddressPool for those who name none.
const DefaultAddressPool = "default"

// BGPSecretNamespace is the namespace of the Secrets with BGP peers' passwords, each under the key BGPPasswordKey.
const (
	BGPSecretNamespace = "mni-bgp"
	BGPPasswordKey     = "password"
)

// The ports of an external address that NATGateways share, in blocks.
const (
	// FirstNATPort is the first port of the first PortBlock.
	FirstNATPort int32 = 1024
	// PortBlockSize is how many ports a PortBlock has.
	PortBlockSize int32 = 512
)

// The kinds that use external addresses, as ExternalIPUser says them.
const (
	KindFloatingIP = "FloatingIP"
	KindNATGateway = "NATGateway"
)
