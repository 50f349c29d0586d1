package dependency

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/mnicloud/mnicloud/kit/conditions"
	kit "github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/platform/dependency/declare"
	"github.com/mnicloud/mnicloud/platform/dependency/graph"
)

// watcher keeps the state as the cluster is: it watches the definitions of kinds, and the objects of those that tenants have.
type watcher struct {
	state  *state
	client dynamic.Interface
	crds   crdinformers.SharedInformerFactory
	log    *slog.Logger
	// touch is told which objects are to be looked at again.
	touch func(...graph.Key)

	mu      sync.Mutex
	running map[schema.GroupKind]*watched
	// listed: all definitions were there once. complete: all objects were known once.
	listed, complete bool
}

// watched is a kind whose objects are watched.
type watched struct {
	kind   *kind
	cancel context.CancelFunc
	done   chan struct{}
	// synced: all objects are known; denied: they may not be.
	synced, denied bool
}

func newWatcher(config *rest.Config, s *state, log *slog.Logger, touch func(...graph.Key)) (*watcher, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	definitions, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	crds := crdinformers.NewSharedInformerFactoryWithOptions(definitions, 0, crdinformers.WithTransform(essential))
	return &watcher{state: s, client: client, crds: crds, log: log, touch: touch, running: map[schema.GroupKind]*watched{}}, nil
}

// essential keeps of a definition what kindOf reads.
func essential(o any) (any, error) {
	if crd, ok := o.(*apiextensionsv1.CustomResourceDefinition); ok {
		crd.ManagedFields, crd.Annotations = nil, nil
		if !declare.OfCloud(crd.Spec.Group) {
			crd.Spec.Versions = nil
		}
	}
	return o, nil
}

// NeedLeaderElection says that it runs in every replica: each serves the webhook.
func (w *watcher) NeedLeaderElection() bool { return false }

// Start watches until the context ends.
func (w *watcher) Start(ctx context.Context) error {
	informer := w.crds.Apiextensions().V1().CustomResourceDefinitions().Informer()
	changed := func(o any) {
		if crd, ok := o.(*apiextensionsv1.CustomResourceDefinition); ok {
			w.follow(ctx, crd)
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if crd, ok := o.(*apiextensionsv1.CustomResourceDefinition); ok {
				w.stop(schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind})
			}
		},
	})
	if err != nil {
		return err
	}
	w.crds.StartWithContext(ctx)
	defer w.crds.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return nil
	}
	w.mu.Lock()
	w.listed = true
	w.mu.Unlock()
	w.touch(w.state.setListed()...)
	w.touch(w.state.guardedKeys()...)
	<-ctx.Done()
	w.mu.Lock()
	running := slices.Collect(maps.Values(w.running))
	w.mu.Unlock()
	for _, r := range running {
		<-r.done
	}
	return nil
}

// settled tells whether all objects of all kinds are known, as far as they may be.
func (w *watcher) settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.listed {
		return false
	}
	for _, r := range w.running {
		if !r.synced && !r.denied {
			return false
		}
	}
	w.complete = true
	return true
}

// started tells whether all objects were known once. A kind that comes later and cannot be listed yet keeps nobody from writing.
func (w *watcher) started() bool {
	if w.settled() {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.complete
}

// kindOf is the kind that a definition makes; nil when tenants have no objects of it.
func kindOf(crd *apiextensionsv1.CustomResourceDefinition) *kind {
	if !declare.OfCloud(crd.Spec.Group) || crd.Spec.Scope != apiextensionsv1.NamespaceScoped {
		return nil
	}
	established := slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
	if !established {
		return nil
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if !v.Served || !v.Storage && len(crd.Spec.Versions) > 1 {
			continue
		}
		gv := schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}
		k := &kind{GroupVersionKind: gv.WithKind(crd.Spec.Names.Kind), resource: gv.WithResource(crd.Spec.Names.Plural)}
		k.status, k.leaving = v.Subresources != nil && v.Subresources.Status != nil, crd.DeletionTimestamp != nil
		if v.Schema != nil {
			k.Kind = declare.Of(v.Schema.OpenAPIV3Schema)
		}
		return k
	}
	return nil
}

// follow watches the objects of a kind as its definition is now.
func (w *watcher) follow(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) {
	gk := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
	k := kindOf(crd)
	w.mu.Lock()
	old := w.running[gk]
	w.mu.Unlock()
	if old != nil && k != nil && reflect.DeepEqual(old.kind, k) {
		return
	}
	w.stop(gk)
	if k == nil || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &watched{kind: k, cancel: cancel, done: make(chan struct{})}
	w.mu.Lock()
	w.running[gk] = r
	w.mu.Unlock()
	w.kindsChanged()
	go func() {
		defer close(r.done)
		w.watch(ctx, r)
	}()
}

// stop forgets a kind and its objects.
func (w *watcher) stop(gk schema.GroupKind) {
	w.mu.Lock()
	r := w.running[gk]
	delete(w.running, gk)
	w.mu.Unlock()
	if r == nil {
		return
	}
	r.cancel()
	<-r.done
	w.state.setKnown(gk, false)
	for _, key := range w.state.keysOf(gk) {
		w.touch(w.state.remove(key)...)
	}
	w.kindsChanged()
}

func (w *watcher) kindsChanged() {
	w.mu.Lock()
	kinds := slices.Collect(maps.Keys(w.running))
	w.mu.Unlock()
	w.touch(w.state.setKinds(kinds)...)
}

// watch watches the objects of a kind until the context ends.
func (w *watcher) watch(ctx context.Context, r *watched) {
	resource := w.client.Resource(r.kind.resource)
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return resource.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, 0, cache.Indexers{})
	set := func(o any) {
		if o, ok := o.(*object); ok {
			w.touch(w.state.set(o)...)
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: set, UpdateFunc: func(_, o any) { set(o) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if o, ok := o.(*object); ok {
				w.touch(w.state.remove(o.key)...)
			}
		},
	})
	if err == nil {
		err = informer.SetTransform(func(o any) (any, error) { return r.kind.read(o) })
	}
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
			if apierrors.IsForbidden(err) {
				w.mark(r, func() { r.denied = true })
				w.log.Warn("objects of a kind cannot be looked at: nothing of it waits or is kept", "kind", r.kind.GroupKind().String(), "error", err)
				return
			}
			cache.DefaultWatchErrorHandler(ctx, reflector, err)
		})
	}
	if err != nil {
		w.log.Error("watch a kind", "kind", r.kind.GroupKind().String(), "error", err)
		return
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { informer.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		w.mark(r, func() { r.synced, r.denied = true, false })
	}
	<-ctx.Done()
}

// mark notes how far a kind is known; then what is guarded may not need to be.
func (w *watcher) mark(r *watched, note func()) {
	w.mu.Lock()
	note()
	w.mu.Unlock()
	w.touch(w.state.setKnown(r.kind.GroupKind(), true)...)
	if w.settled() {
		w.touch(w.state.guardedKeys()...)
	}
}

// read keeps of an object what matters.
func (k *kind) read(from any) (any, error) {
	u, ok := from.(*unstructured.Unstructured)
	if !ok {
		return from, nil // it was read before
	}
	m, err := meta.Accessor(u)
	if err != nil {
		return nil, err
	}
	o := &object{kind: k, ObjectMeta: metav1.ObjectMeta{
		Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(), Generation: m.GetGeneration(),
		CreationTimestamp: m.GetCreationTimestamp(), DeletionTimestamp: m.GetDeletionTimestamp(), Finalizers: m.GetFinalizers(),
	}}
	o.key = graph.Key{GroupKind: k.GroupKind(), Namespace: o.Namespace, Name: o.Name}
	o.on, o.fields = declare.DependsOn(u.Object), k.Edges(o.Namespace, u.Object)
	var status struct {
		Status struct {
			Conditions   []metav1.Condition `json:"conditions"`
			Dependencies *kit.Status        `json:"dependencies"`
			Dependents   []string           `json:"dependents"`
		} `json:"status"`
	}
	part := map[string]any{"status": u.Object["status"]}
	if u.Object["status"] == nil {
		part = map[string]any{}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(part, &status); err != nil {
		return nil, fmt.Errorf("read the status of %s: %w", o.key, err)
	}
	o.ready, o.why = conditions.IsReady(status.Status.Conditions, o.Generation), conditions.Message(status.Status.Conditions)
	o.seen, o.dependents = status.Status.Dependencies, status.Status.Dependents
	return o, nil
}
