package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
)

// Labels on the network's interfaces of Containers.
const (
	// LabelContainer is the Container's name; Pods have it, too.
	LabelContainer = "ctr.mnicloud.jp/container"
	// LabelNamespace is the Container's namespace.
	LabelNamespace = "ctr.mnicloud.jp/namespace"
)

// Finalizer is on every object of the group that has something to clean up.
const Finalizer = "ctr.mnicloud.jp/cleanup"

// EnvVar is an environment variable of a Container, a plain value.
type EnvVar struct {
	// Name of the variable.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9_.-]*$')",message="name must begin with a letter or '_' and go on with letters, digits, '_', '.' and '-', such as LOG_LEVEL"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('MNI_')",message="names that begin with MNI_ are set by the cloud; choose another"
	Name string `json:"name"`
	// Value of the variable; `$(OTHER)` is replaced by OTHER's value, `$$` by `$`.
	// +optional
	// +kubebuilder:validation:MaxLength=30000
	// +kubebuilder:validation:XValidation:rule="!self.contains('\\x00')",message="value must not hold a NUL character: it ends what the kernel is given"
	Value string `json:"value,omitempty"`
}

// Port is a port a Container listens on.
type Port struct {
	// Name of the port, an IANA_SVC_NAME (RFC 6335).
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]+-)*[a-z0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$')",message="name must be lower case letters, digits and '-' between them, with at least one letter, such as http"
	Name string `json:"name,omitempty"`
	// Port number.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Protocol of the port.
	// +optional
	// +kubebuilder:default=TCP
	// +kubebuilder:validation:Enum=TCP;UDP
	Protocol corev1.Protocol `json:"protocol,omitempty"`
}

// HTTPGet asks for a path and succeeds on a status from 200 to 399.
type HTTPGet struct {
	// Path to ask for.
	// +optional
	// +kubebuilder:default="/"
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="path must begin with a slash, such as /healthz"
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`
	// Port number.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// TCPConnect succeeds when a connection opens.
type TCPConnect struct {
	// Port number.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// Exec runs a command in the container and succeeds when it exits with 0.
type Exec struct {
	// Command and its arguments; no shell is involved.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=30000
	// +kubebuilder:validation:items:XValidation:rule="!self.contains('\\x00')",message="must not hold a NUL character: it ends what the kernel is given"
	// +listType=atomic
	Command []string `json:"command"`
}

// Probe looks at a Container from outside. Exactly one of exec, httpGet and tcpConnect is set.
// +kubebuilder:validation:XValidation:rule="[has(self.exec), has(self.httpGet), has(self.tcpConnect)].exists_one(x, x)",message="set exactly one of exec, httpGet and tcpConnect"
type Probe struct {
	// +optional
	Exec *Exec `json:"exec,omitempty"`
	// +optional
	HTTPGet *HTTPGet `json:"httpGet,omitempty"`
	// +optional
	TCPConnect *TCPConnect `json:"tcpConnect,omitempty"`
	// InitialDelaySeconds before the first look.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InitialDelaySeconds int32 `json:"initialDelaySeconds,omitempty"`
	// PeriodSeconds between looks.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
	// TimeoutSeconds of one look.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// FailureThreshold is how many failures in a row count.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
}

// Probes of a Container.
type Probes struct {
	// Startup holds back the other two until it has succeeded once.
	// +optional
	Startup *Probe `json:"startup,omitempty"`
	// Liveness restarts the container when it fails.
	// +optional
	Liveness *Probe `json:"liveness,omitempty"`
	// Readiness decides whether the Container is Ready.
	// +optional
	Readiness *Probe `json:"readiness,omitempty"`
}

// Amounts of what a Container uses.
type Amounts struct {
	// CPU in cores: 2, 0.5, or 500m (thousandths).
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0')) && quantity(string(self)).compareTo(quantity('1024')) <= 0",message="cpu must be more than 0 and at most 1024 cores, such as 500m or 2"
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// Memory in bytes: 64Mi, 1Gi. Less than 16Mi starts no container.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('16Mi')) >= 0 && quantity(string(self)).compareTo(quantity('64Ti')) <= 0",message="memory must be from 16Mi to 64Ti, such as 64Mi or 1Gi"
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// Resources of a Container. Without a request, the limit is what it asks for.
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || !has(self.requests.cpu) || !has(self.limits.cpu) || !isQuantity(string(self.requests.cpu)) || !isQuantity(string(self.limits.cpu)) || quantity(string(self.requests.cpu)).compareTo(quantity(string(self.limits.cpu))) <= 0",message="requests.cpu must not be more than limits.cpu"
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || !has(self.requests.memory) || !has(self.limits.memory) || !isQuantity(string(self.requests.memory)) || !isQuantity(string(self.limits.memory)) || quantity(string(self.requests.memory)).compareTo(quantity(string(self.limits.memory))) <= 0",message="requests.memory must not be more than limits.memory"
type Resources struct {
	// Requests are set aside for the Container on its node.
	// +optional
	Requests *Amounts `json:"requests,omitempty"`
	// Limits are the most it gets: with more cpu it is slowed down, with more memory it is ended and started again.
	// +optional
	Limits *Amounts `json:"limits,omitempty"`
}

// ContainerSpec is what a Container should be.
// +kubebuilder:validation:XValidation:rule="has(self.address) == has(oldSelf.address) && (!has(self.address) || self.address == oldSelf.address)",message="address cannot be changed; make a new Container"
type ContainerSpec struct {
	// Subnet is the name of the Subnet, of the same tenant, that the Container is in.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="subnet must be the name of a Subnet of the same tenant, such as front"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="subnet cannot be changed; make a new Container"
	// +kubebuilder:title="needs Subnet.vpc.mnicloud.jp"
	Subnet string `json:"subnet"`
	// Address asks for one address of the Subnet (10.0.1.7); without it any free one is given. Either way it stays with the
	// Container.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4",message="address must be an IPv4 address such as 10.0.1.7"
	Address string `json:"address,omitempty"`
	// Image reference: [registry/]repository[:tag][@digest] (OCI distribution specification). What stands before the first slash is
	// a registry when it has a dot or a port; all else is the repository, in lower case.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)+(:[0-9]+)?|[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?:[0-9]+)/)?[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[a-f0-9]{64})?$')",message="image must be [registry/]repository[:tag][@sha256:digest] with the repository in lower case, such as registry.mni.internal/shop/web:1"
	Image string `json:"image"`
	// Command replaces the image's entrypoint. Linux starts no program with a string of 128 KiB or more; 30000 characters always fit.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=30000
	// +kubebuilder:validation:items:XValidation:rule="!self.contains('\\x00')",message="must not hold a NUL character: it ends what the kernel is given"
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// Args replace the image's arguments.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=30000
	// +kubebuilder:validation:items:XValidation:rule="!self.contains('\\x00')",message="must not hold a NUL character: it ends what the kernel is given"
	// +listType=atomic
	Args []string `json:"args,omitempty"`
	// Env are environment variables. MNI_NAME, MNI_ADDRESS, MNI_VPC, MNI_SUBNET and MNI_NODE are
	// set by the cloud.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	Env []EnvVar `json:"env,omitempty"`
	// Ports the Container listens on.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(q, q.port == p.port && q.protocol == p.protocol))",message="each port and protocol may stand only once"
	// +kubebuilder:validation:XValidation:rule="self.all(p, !has(p.name) || p.name == '' || self.exists_one(q, has(q.name) && q.name == p.name))",message="each port's name may stand only once"
	// +listType=atomic
	Ports []Port `json:"ports,omitempty"`
	// Probes of the Container.
	// +optional
	Probes *Probes `json:"probes,omitempty"`
	// SecurityGroups are the names of the SecurityGroups, of the same tenant, that the Container is in. They can be changed while
	// it runs. Without any everything in the Vpc may reach it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="must be the name of a SecurityGroup of the same tenant, such as web"
	// +kubebuilder:title="keeps SecurityGroup.vpc.mnicloud.jp"
	SecurityGroups []string `json:"securityGroups,omitempty"`
	// SourceDestCheck drops what the Container sends from, or is sent to, an address that is not its own. Default true. Where it is
	// false the Container is a router: RouteTables can lead to it, and it forwards. A change makes its Pod anew.
	// +optional
	// +kubebuilder:default=true
	SourceDestCheck *bool `json:"sourceDestCheck,omitempty"`
	// Resources asked for (requests) and at most given (limits).
	// +optional
	Resources Resources `json:"resources,omitempty"`
	// Node asks for one node by name; without it the scheduler chooses.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",message="node must be the name of a node, such as node-1"
	Node string `json:"node,omitempty"`
	// DependsOn are resources of the same tenant that must be Ready before this one is made. They stay as long as this one does.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	DependsOn []dependency.Dependency `json:"dependsOn,omitempty"`
}

// ContainerStatus is how a Container is.
type ContainerStatus struct {
	// Phase is computed from the conditions.
	// +optional
	Phase status.Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Address is the Container's address in its Subnet. It stays with the Container.
	// +optional
	Address string `json:"address,omitempty"`
	// Node the Container runs on.
	// +optional
	Node string `json:"node,omitempty"`
	// Pod is the name of the Pod that runs the Container now.
	// +optional
	Pod string `json:"pod,omitempty"`
	// Restarts of the container in its present Pod.
	// +optional
	Restarts int32 `json:"restarts,omitempty"`
	// Conditions: Ready, and while they apply Reconciling or Stalled.
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

// Container is one container of a tenant, with an address of its own in a Subnet. When its Pod is lost another is made with
// the same address.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=mni,shortName=ctr
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="Subnet",type=string,JSONPath=`.spec.subnet`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be at most 63 characters and have no dots"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.dependsOn) || !self.spec.dependsOn.exists(d, d.name == self.metadata.name && d.kind in ['Container', 'Container.ctr', 'Container.ctr.mnicloud.jp'])",message="spec.dependsOn must not name the resource itself"
type Container struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ContainerSpec `json:"spec"`
	// +optional
	Status ContainerStatus `json:"status,omitempty"`
}

// ContainerList is a list of Containers.
// +kubebuilder:object:root=true
type ContainerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Container `json:"items"`
}
