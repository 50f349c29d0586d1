package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/openapi3"

	"github.com/mnicloud/mnicloud/platform/dependency/declare"
	"github.com/mnicloud/mnicloud/platform/dependency/graph"
)

// related is what depends on what in one namespace, read with the rights of who asks: from the kinds' OpenAPI, which says what each
// names, and from lists of their objects.
type related struct {
	*graph.Graph
	kinds  map[schema.GroupKind]schema.GroupVersionResource
	client dynamic.Interface
	uids   map[graph.Key]types.UID
	// going are those that are being deleted.
	going map[graph.Key]bool
}

// kindOfTenants is a kind of which tenants have objects.
type kindOfTenants struct {
	schema.GroupVersionKind
	resource schema.GroupVersionResource
	declared declare.Kind
}

// related reads the graph of a namespace.
func (c *connection) related(ctx context.Context, namespace string) (*related, error) {
	client, err := c.factory().DynamicClient()
	if err != nil {
		return nil, err
	}
	kinds, err := c.declaredKinds()
	if err != nil {
		return nil, err
	}
	r := &related{
		Graph: graph.New(), client: client, kinds: map[schema.GroupKind]schema.GroupVersionResource{},
		uids: map[graph.Key]types.UID{}, going: map[graph.Key]bool{},
	}
	var known []schema.GroupKind
	for _, k := range kinds {
		r.kinds[k.GroupKind()] = k.resource
		known = append(known, k.GroupKind())
	}
	var lock sync.Mutex
	var unseen []string
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, k := range kinds {
		group.Go(func() error {
			list, err := client.Resource(k.resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
			lock.Lock()
			defer lock.Unlock()
			switch {
			case apierrors.IsForbidden(err):
				unseen = append(unseen, k.resource.GroupResource().String())
				return nil
			case apierrors.IsNotFound(err):
				return nil // the kind went meanwhile
			case err != nil:
				return fmt.Errorf("list %s: %w", k.resource.Resource, err)
			}
			for i := range list.Items {
				o := &list.Items[i]
				key := graph.Key{GroupKind: k.GroupKind(), Namespace: namespace, Name: o.GetName()}
				// An entry of a kind that there is not leads nowhere.
				on, _ := declare.DependsOnEdges(namespace, declare.DependsOn(o.Object), known)
				r.Set(key, append(k.declared.Edges(namespace, o.Object), on...))
				r.uids[key], r.going[key] = o.GetUID(), o.GetDeletionTimestamp() != nil
			}
			return nil
		})
	}
	err = group.Wait()
	if slices.Sort(unseen); len(unseen) > 0 {
		fmt.Fprintf(c.streams.ErrOut, "you may not list %s: what of them depends on something is not shown\n", strings.Join(unseen, ", "))
	}
	return r, err
}

// declaredKinds are the kinds of which tenants have objects, with what they say that those name.
func (c *connection) declaredKinds() ([]kindOfTenants, error) {
	discovered, err := c.discovery()
	if err != nil {
		return nil, err
	}
	lists, err := discovery.ServerPreferredNamespacedResources(discovered)
	if len(lists) == 0 {
		return nil, err
	}
	root := openapi3.NewRoot(discovered.OpenAPIV3())
	var kinds []kindOfTenants
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		if !ofCloud(gv.Group) || len(list.APIResources) == 0 {
			continue
		}
		document, err := root.GVSpecAsMap(gv)
		if err != nil {
			return nil, fmt.Errorf("read what the kinds of %s name: %w", gv, err)
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			schemas, err := schemaOf(document, gv.WithKind(r.Kind))
			if err != nil {
				return nil, err
			}
			kinds = append(kinds, kindOfTenants{gv.WithKind(r.Kind), gv.WithResource(r.Name), declare.Of(schemas)})
		}
	}
	slices.SortFunc(kinds, func(a, b kindOfTenants) int { return cmp.Compare(a.resource.String(), b.resource.String()) })
	return kinds, nil
}

// schemaOf is the schema of a kind in a document of OpenAPI v3; nil when it is not there.
func schemaOf(document map[string]any, gvk schema.GroupVersionKind) (*apiextensionsv1.JSONSchemaProps, error) {
	components, _ := document["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	for _, value := range schemas {
		content, _ := value.(map[string]any)
		about, _ := content["x-kubernetes-group-version-kind"].([]any)
		if !slices.ContainsFunc(about, func(v any) bool {
			is, _ := v.(map[string]any)
			return is["group"] == gvk.Group && is["version"] == gvk.Version && is["kind"] == gvk.Kind
		}) {
			continue
		}
		text, err := json.Marshal(content)
		if err != nil {
			return nil, err
		}
		out := &apiextensionsv1.JSONSchemaProps{}
		if err := json.Unmarshal(text, out); err != nil {
			return nil, fmt.Errorf("read what %s names: %w", gvk.Kind, err)
		}
		return out, nil
	}
	return nil, nil
}

// keyOf is a target's place in the graph.
func keyOf(t *target) graph.Key {
	return graph.Key{GroupKind: t.mapping.GroupVersionKind.GroupKind(), Namespace: t.namespace, Name: t.name}
}

func shown(key graph.Key) string { return display(key.GroupKind, key.Name) }
