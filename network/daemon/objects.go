package daemon

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/agent"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/daemon/desired"
)

// podIndex finds NetworkInterfaces by the UID of the Pod that holds them, and by its namespace and name.
const podIndex = "pod"

// objects are the API objects that a node's network depends on, kept up to date by watches.
type objects struct {
	cache  cache.Cache
	scheme *runtime.Scheme
	mapper *meta.DefaultRESTMapper
	// watched are the resources of the kinds.
	watched []schema.GroupVersionResource
	// onChange is called after any of them has changed.
	onChange func()

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

// kinds of objects, and how little is kept of each.
var kinds = []struct {
	object     client.Object
	namespaced bool
	strip      func(any)
	plural     string // where it is not the usual one of an English word
}{
	{&corev1.Node{}, false, stripNode, ""},
	{&corev1.Service{}, true, func(any) {}, ""},
	{&discoveryv1.EndpointSlice{}, true, stripSlice, ""},
	{&netv1.Subnet{}, false, func(any) {}, ""},
	{&netv1.RouteTable{}, false, func(any) {}, ""},
	{&netv1.VPCPeering{}, false, func(any) {}, ""},
	{&netv1.NetworkInterface{}, false, func(any) {}, ""},
	{&netv1.AddressPool{}, false, func(any) {}, ""},
	{&netv1.FloatingIP{}, false, func(any) {}, ""},
	{&netv1.NATGateway{}, false, func(any) {}, "natgateways"},
	{&netv1.PortBlock{}, false, func(any) {}, ""},
	{&netv1.SecurityGroup{}, false, func(any) {}, ""},
	{&networkingv1.NetworkPolicy{}, true, func(any) {}, ""},
	{&corev1.Pod{}, true, stripPod, ""},
	{&corev1.Namespace{}, false, stripNamespace, ""},
}

// claimed are the kinds that are not watched but read, or made, to claim an interface.
var claimed = []string{"VPC", "IPLease"}

func newObjects(config *rest.Config, onChange func(), watchError toolscache.WatchErrorHandlerWithContext) (*objects, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(discoveryv1.AddToScheme(scheme))
	utilruntime.Must(networkingv1.AddToScheme(scheme))
	utilruntime.Must(netv1.AddToScheme(scheme))
	// A fixed mapping of kinds: the daemon asks the API server for nothing it does not watch.
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, networkingv1.SchemeGroupVersion, netv1.GroupVersion})
	var watched []schema.GroupVersionResource
	options := cache.Options{Scheme: scheme, Mapper: mapper, ByObject: map[client.Object]cache.ByObject{}, DefaultWatchErrorHandler: watchError}
	for _, k := range kinds {
		gvks, _, err := scheme.ObjectKinds(k.object)
		if err != nil {
			return nil, err
		}
		scope := meta.RESTScopeRoot
		if k.namespaced {
			scope = meta.RESTScopeNamespace
		}
		plural, singular := meta.UnsafeGuessKindToResource(gvks[0])
		if k.plural != "" {
			plural.Resource = k.plural
		}
		mapper.AddSpecific(gvks[0], plural, singular, scope)
		watched = append(watched, plural)
		options.ByObject[k.object] = cache.ByObject{Transform: func(o any) (any, error) {
			if object, ok := o.(client.Object); ok {
				object.SetManagedFields(nil)
				object.SetAnnotations(nil)
				k.strip(o)
			}
			return o, nil
		}}
	}
	for _, kind := range claimed {
		mapper.Add(netv1.GroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	c, err := cache.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("cache of API objects: %w", err)
	}
	return &objects{cache: c, scheme: scheme, mapper: mapper, watched: watched, onChange: onChange, changed: make(chan struct{})}, nil
}

// direct is a client without a cache, for what is read to be written.
func (o *objects) direct(config *rest.Config) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the API server has priorities and fairness
	c, err := client.New(config, client.Options{Scheme: o.scheme, Mapper: o.mapper})
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return c, nil
}

func stripNode(o any) {
	if node, ok := o.(*corev1.Node); ok {
		node.Labels, node.Spec = nil, corev1.NodeSpec{}
		node.Status = corev1.NodeStatus{Addresses: node.Status.Addresses}
	}
}

func stripSlice(o any) {
	if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			*e = discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, NodeName: e.NodeName}
		}
	}
}

// stripPod keeps what NetworkPolicies ask of a Pod: its labels and the names of its ports. Where it is its interface says.
func stripPod(o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	spec := corev1.PodSpec{}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil { // a sidecar
			spec.InitContainers = append(spec.InitContainers, corev1.Container{Ports: c.Ports})
		}
	}
	for _, c := range pod.Spec.Containers {
		spec.Containers = append(spec.Containers, corev1.Container{Ports: c.Ports})
	}
	pod.Spec, pod.Status, pod.OwnerReferences, pod.Finalizers = spec, corev1.PodStatus{}, nil, nil
}

func stripNamespace(o any) {
	if namespace, ok := o.(*corev1.Namespace); ok {
		namespace.Spec, namespace.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
	}
}

// sameForPolicies tells that an update of a Pod or a Namespace changes nothing here: most of them change a status.
func sameForPolicies(before, after any) bool {
	switch old := before.(type) {
	case *corev1.Pod:
		pod, ok := after.(*corev1.Pod)
		return ok && old.UID == pod.UID && maps.Equal(old.Labels, pod.Labels)
	case *corev1.Namespace:
		namespace, ok := after.(*corev1.Namespace)
		return ok && maps.Equal(old.Labels, namespace.Labels)
	}
	return false
}

// start watches until ctx ends and returns once everything has been seen. It waits for an API server that is not there yet.
func (o *objects) start(ctx context.Context) error {
	if err := o.cache.IndexField(ctx, &netv1.NetworkInterface{}, podIndex, func(object client.Object) []string {
		nic, ok := object.(*netv1.NetworkInterface)
		if !ok || nic.Spec.Pod == nil {
			return nil
		}
		return []string{string(nic.Spec.Pod.UID), nic.Spec.Pod.Namespace + "/" + nic.Spec.Pod.Name}
	}); err != nil {
		return err
	}
	all := make([]client.Object, 0, len(kinds))
	for _, k := range kinds {
		all = append(all, k.object)
	}
	return agent.Watch(ctx, o.cache, all, o.notify, sameForPolicies)
}

func (o *objects) notify() {
	o.mu.Lock()
	close(o.changed)
	o.changed = make(chan struct{})
	o.mu.Unlock()
	o.onChange()
}

// next is closed at the next change.
func (o *objects) next() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

// input reads everything the maps depend on. What it returns is shared with the cache: read only.
func (o *objects) input(ctx context.Context) (desired.Input, error) {
	return ReadInput(ctx, o.cache, client.UnsafeDisableDeepCopy)
}

// readyCondition is the condition of an object that sums it up.
func readyCondition(conditions []metav1.Condition, conditionType string) (bool, string) {
	c := meta.FindStatusCondition(conditions, conditionType)
	switch {
	case c == nil:
		return false, "nothing has been allocated yet"
	case c.Status == metav1.ConditionTrue:
		return true, ""
	default:
		return false, fmt.Sprintf("%s: %s", c.Reason, c.Message)
	}
}
