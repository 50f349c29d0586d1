package bgp

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/agent"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/bgp/desired"
)

// objects are the API objects that a node's speaker depends on, kept up to date by watches, and a way to write to them.
type objects struct {
	cache  cache.Cache
	client client.Client
	node   string
	// resources are those of the watched kinds that have no namespaces.
	resources []schema.GroupVersionResource
	// onChange is called after any of them has changed.
	onChange func()
}

// watched are the kinds, and whether they are namespaced.
var watched = []struct {
	object     client.Object
	namespaced bool
}{
	{&corev1.Node{}, false},
	{&corev1.Secret{}, true},
	{&netv1.AddressPool{}, false},
	{&netv1.BGPPeer{}, false},
	{&netv1.BGPAdvertisement{}, false},
	{&netv1.FloatingIP{}, false},
}

func newObjects(config *rest.Config, node string, onChange func()) (*objects, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(netv1.AddToScheme(scheme))
	// A fixed mapping of kinds: the speaker asks the API server for nothing it does not watch.
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, netv1.GroupVersion})
	var resources []schema.GroupVersionResource
	for _, w := range watched {
		kinds, _, err := scheme.ObjectKinds(w.object)
		if err != nil {
			return nil, err
		}
		scope := meta.RESTScopeRoot
		if w.namespaced {
			scope = meta.RESTScopeNamespace
		}
		mapper.Add(kinds[0], scope)
		if plural, _ := meta.UnsafeGuessKindToResource(kinds[0]); !w.namespaced {
			resources = append(resources, plural)
		}
		// A cache of single namespaces asks for the scope of the list's kind.
		mapper.Add(kinds[0].GroupVersion().WithKind(kinds[0].Kind+"List"), scope)
	}
	all, err := cache.New(config, cache.Options{
		Scheme: scheme, Mapper: mapper, DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:      {Field: fields.OneTermEqualSelector("metadata.name", node), Transform: stripNode},
			&netv1.FloatingIP{}: {Transform: stripFloatingIP},
			&corev1.Secret{}:    {Namespaces: map[string]cache.Config{netv1.BGPSecretNamespace: {}}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of API objects: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return &objects{cache: all, client: c, resources: resources, node: node, onChange: onChange}, nil
}

// stripNode keeps a node's labels and addresses: what its kubelet reports all the time is nobody's business here.
func stripNode(o any) (any, error) {
	if node, ok := o.(*corev1.Node); ok {
		node.ManagedFields, node.Annotations, node.Spec = nil, nil, corev1.NodeSpec{}
		node.Status = corev1.NodeStatus{Addresses: node.Status.Addresses}
	}
	return o, nil
}

// stripFloatingIP keeps what says where the external address leads: there may be many.
func stripFloatingIP(o any) (any, error) {
	if fip, ok := o.(*netv1.FloatingIP); ok {
		fip.ManagedFields, fip.Annotations, fip.Labels, fip.Status.Conditions = nil, nil, nil, nil
	}
	return o, nil
}

// start watches until ctx ends and returns once everything has been seen.
func (o *objects) start(ctx context.Context) error {
	all := make([]client.Object, 0, len(watched))
	for _, k := range watched {
		all = append(all, k.object)
	}
	return agent.Watch(ctx, o.cache, all, o.onChange, nil)
}

// input reads everything that BIRD's configuration depends on.
func (o *objects) input(ctx context.Context) (desired.Input, error) {
	in := desired.Input{Node: &corev1.Node{}, Passwords: map[string]string{}}
	if err := o.cache.Get(ctx, client.ObjectKey{Name: o.node}, in.Node); err != nil {
		return in, fmt.Errorf("read Node %s: %w", o.node, err)
	}
	var pools netv1.AddressPoolList
	var peers netv1.BGPPeerList
	var advertisements netv1.BGPAdvertisementList
	var secrets corev1.SecretList
	var floating netv1.FloatingIPList
	for _, list := range []client.ObjectList{&pools, &peers, &advertisements, &secrets, &floating} {
		if err := o.cache.List(ctx, list); err != nil {
			return in, fmt.Errorf("read the cache of API objects: %w", err)
		}
	}
	in.Pools, in.Peers, in.Advertisements = pools.Items, peers.Items, advertisements.Items
	in.InUse = desired.InUse(floating.Items, o.node)
	for i := range secrets.Items {
		if password, ok := secrets.Items[i].Data[netv1.BGPPasswordKey]; ok {
			in.Passwords[secrets.Items[i].Name] = string(password)
		}
	}
	return in, nil
}
