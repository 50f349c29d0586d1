package dns

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/agent"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/dns/names"
)

// objects are the API objects that names are made from, kept up to date by watches.
type objects struct {
	cache     cache.Cache
	resources []schema.GroupVersionResource
	// onChange is called after any of them has changed.
	onChange func()
}

// watched are the kinds, and how little is kept of each.
var watched = []struct {
	object client.Object
	scope  meta.RESTScope
	strip  func(any)
}{
	{&netv1.VPC{}, meta.RESTScopeRoot, func(any) {}},
	{&netv1.NetworkInterface{}, meta.RESTScopeRoot, stripInterface},
	{&corev1.Service{}, meta.RESTScopeNamespace, stripService},
	{&discoveryv1.EndpointSlice{}, meta.RESTScopeNamespace, stripSlice},
}

func newObjects(config *rest.Config, onChange func()) (*objects, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(discoveryv1.AddToScheme(scheme))
	utilruntime.Must(netv1.AddToScheme(scheme))
	// A fixed mapping of kinds: the API server is asked for nothing that is not watched.
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, netv1.GroupVersion})
	options := cache.Options{Scheme: scheme, Mapper: mapper, ByObject: map[client.Object]cache.ByObject{}}
	var resources []schema.GroupVersionResource
	for _, w := range watched {
		kinds, _, err := scheme.ObjectKinds(w.object)
		if err != nil {
			return nil, err
		}
		mapper.Add(kinds[0], w.scope)
		plural, _ := meta.UnsafeGuessKindToResource(kinds[0])
		resources = append(resources, plural)
		options.ByObject[w.object] = cache.ByObject{Transform: func(o any) (any, error) {
			if object, ok := o.(client.Object); ok {
				object.SetManagedFields(nil)
				object.SetAnnotations(nil)
				w.strip(o)
			}
			return o, nil
		}}
	}
	all, err := cache.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("cache of API objects: %w", err)
	}
	return &objects{cache: all, resources: resources, onChange: onChange}, nil
}

func stripInterface(o any) {
	if nic, ok := o.(*netv1.NetworkInterface); ok {
		nic.Status.Conditions = nil
	}
}

func stripService(o any) {
	if service, ok := o.(*corev1.Service); ok {
		service.Labels = nil
		ports := make([]corev1.ServicePort, 0, len(service.Spec.Ports))
		for _, p := range service.Spec.Ports {
			ports = append(ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
		}
		service.Spec = corev1.ServiceSpec{Type: service.Spec.Type, ClusterIP: service.Spec.ClusterIP, ExternalName: service.Spec.ExternalName, Ports: ports}
		service.Status = corev1.ServiceStatus{}
	}
}

func stripSlice(o any) {
	if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			*e = discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, Hostname: e.Hostname}
		}
	}
}

// start watches until ctx ends and returns once everything has been seen.
func (o *objects) start(ctx context.Context) error {
	all := make([]client.Object, 0, len(watched))
	for _, k := range watched {
		all = append(all, k.object)
	}
	return agent.Watch(ctx, o.cache, all, o.onChange, nil)
}

// input reads everything that names are made from. It is shared with the cache: read only.
func (o *objects) input(ctx context.Context) (names.Input, error) {
	var vpcs netv1.VPCList
	var interfaces netv1.NetworkInterfaceList
	var services corev1.ServiceList
	var slices discoveryv1.EndpointSliceList
	for _, list := range []client.ObjectList{&vpcs, &interfaces, &services, &slices} {
		if err := o.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return names.Input{}, fmt.Errorf("read the cache of API objects: %w", err)
		}
	}
	return names.Input{VPCs: vpcs.Items, Interfaces: interfaces.Items, Services: services.Items, Slices: slices.Items}, nil
}
