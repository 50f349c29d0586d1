package gateway

import (
	"context"
	"sync"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// registry keeps the catalog as the definitions of kinds in the cluster are.
type registry struct {
	factory  informers.SharedInformerFactory
	informer cache.SharedIndexInformer
	now      atomic.Pointer[catalog]
	mu       sync.Mutex
}

func newRegistry(config *rest.Config) (*registry, error) {
	client, err := clientset.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(withoutSchema))
	return &registry{factory: factory, informer: factory.Apiextensions().V1().CustomResourceDefinitions().Informer()}, nil
}

// withoutSchema drops what the catalog does not need: schemas are most of a definition.
func withoutSchema(object any) (any, error) {
	crd, ok := object.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return object, nil
	}
	crd.ManagedFields, crd.Annotations, crd.Spec.Conversion = nil, nil, nil
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Schema, crd.Spec.Versions[i].AdditionalPrinterColumns = nil, nil
	}
	return crd, nil
}

// run watches the definitions until the context ends.
func (r *registry) run(ctx context.Context) error {
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { r.rebuild() },
		UpdateFunc: func(any, any) { r.rebuild() },
		DeleteFunc: func(any) { r.rebuild() },
	}
	registration, err := r.informer.AddEventHandler(handler)
	if err != nil {
		return err
	}
	r.factory.StartWithContext(ctx)
	defer r.factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return nil // the context ended first
	}
	r.synced()
	<-ctx.Done()
	return nil
}

// synced makes the first catalog, when all definitions are there.
func (r *registry) synced() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Store(r.build())
}

// rebuild makes a new catalog once there is a first one.
func (r *registry) rebuild() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now.Load() != nil {
		r.now.Store(r.build())
	}
}

func (r *registry) build() *catalog {
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, object := range r.informer.GetStore().List() {
		if crd, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok {
			definitions = append(definitions, crd)
		}
	}
	return newCatalog(definitions)
}

// catalog is what is served now; nil before all definitions are known.
func (r *registry) catalog() *catalog { return r.now.Load() }
