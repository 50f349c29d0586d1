package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

var vpcResource = schema.GroupVersionResource{Group: "vpc.mnicloud.jp", Version: "v1alpha1", Resource: "vpcs"}

func newVpc(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "vpc.mnicloud.jp/v1alpha1", "kind": "Vpc",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"cidr": "10.0.0.0/16"},
	}}
}

func TestAnInformerOfAClientGoProgramFollowsATenant(t *testing.T) {
	w := newWorld(t)
	c := w.dynamic("alice")
	acme := c.Resource(vpcResource).Namespace("acme")
	_, err := acme.Create(t.Context(), newVpc("before"), metav1.CreateOptions{})
	require.NoError(t, err)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c, 0, "acme", nil)
	informer := factory.ForResource(vpcResource).Informer()
	deleted := make(chan any, 10)
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) { deleted <- o }})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	require.True(t, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
	require.Contains(t, informer.GetStore().ListKeys(), "acme/before")
	_, err = acme.Create(t.Context(), newVpc("after"), metav1.CreateOptions{})
	require.NoError(t, err)
	w.eventually("the informer has the new object", func() bool {
		_, ok, _ := informer.GetStore().GetByKey("acme/after")
		return ok
	})
	require.NoError(t, acme.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	for range 2 {
		select {
		case <-deleted:
		case <-time.After(patience):
			t.Fatal("the informer was not told of the deletion")
		}
	}
}

func TestListsComeInPagesWithoutANamespaceInTheToken(t *testing.T) {
	w := newWorld(t)
	c := w.dynamic("root").Resource(vpcResource)
	for _, tenant := range []string{"acme", "globex"} {
		for _, name := range []string{"a", "b", "c"} {
			_, err := c.Namespace(tenant).Create(t.Context(), newVpc(name), metav1.CreateOptions{})
			require.NoError(t, err)
		}
	}
	var found []string
	options := metav1.ListOptions{Limit: 2}
	for {
		list, err := c.List(t.Context(), options)
		require.NoError(t, err)
		for _, o := range list.Items {
			if _, ours := w.namespaces[o.GetNamespace()]; ours {
				found = append(found, o.GetNamespace()+"/"+o.GetName())
			}
		}
		w.noToken(list.GetContinue())
		if options.Continue = list.GetContinue(); options.Continue == "" {
			break
		}
	}
	require.ElementsMatch(t, []string{"acme/a", "acme/b", "acme/c", "globex/a", "globex/b", "globex/c"}, found)
}

// gadgets is a definition that nobody knew when the gateway started.
func gadgets(scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets.gadgets.mnicloud.jp"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "gadgets.mnicloud.jp", Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Gadget", ListKind: "GadgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
						Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"port":  {XIntOrString: true},
							"maybe": {Type: "string", Nullable: true},
							"any":   {Type: "object", XPreserveUnknownFields: &preserve},
						},
					}},
				}},
			}},
		},
	}
}

// https://github.com/kubernetes/kubernetes/issues/79472
func TestAKindMadeAtRunTimeIsServedAndGoesAgain(t *testing.T) {
	w := newWorld(t)
	definitions, err := clientset.NewForConfig(w.direct)
	require.NoError(t, err)
	crds := definitions.ApiextensionsV1().CustomResourceDefinitions()
	_, err = crds.Create(t.Context(), gadgets(apiextensionsv1.NamespaceScoped), metav1.CreateOptions{})
	require.NoError(t, err)
	const path = "/apis/gadgets.mnicloud.jp/v1/namespaces/acme/gadgets"
	const gadget = `{apiVersion: gadgets.mnicloud.jp/v1, kind: Gadget, metadata: {name: g}, spec: {port: http, any: {x: [1]}}}`
	direct, err := dynamic.NewForConfig(w.direct)
	require.NoError(t, err)
	w.eventually("the API server serves the new kind", func() bool {
		_, err := direct.Resource(schema.GroupVersionResource{Group: "gadgets.mnicloud.jp", Version: "v1", Resource: "gadgets"}).List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	began := time.Now()
	w.eventually("a new kind can be used", func() bool { return w.send("alice", http.MethodPost, path, gadget).code == 201 })
	w.eventually("a new kind is described", func() bool {
		return w.send("alice", http.MethodGet, "/openapi/v3/apis/gadgets.mnicloud.jp/v1", "").code == 200
	})
	t.Logf("usable and described after %s", time.Since(began).Round(time.Millisecond)) // the aim is 2 s

	described := w.send("alice", http.MethodGet, "/openapi/v3/apis/gadgets.mnicloud.jp/v1", "")
	document, err := openapi3.NewLoader().LoadFromData([]byte(described.body))
	require.NoError(t, err)
	require.NotNil(t, document.Paths.Find("/apis/gadgets.mnicloud.jp/v1/namespaces/{namespace}/gadgets/{name}"))
	spec := document.Components.Schemas["jp.mnicloud.gadgets.v1.Gadget"].Value.Properties["spec"].Value
	require.Equal(t, true, spec.Properties["port"].Value.Extensions["x-kubernetes-int-or-string"])
	require.True(t, spec.Properties["maybe"].Value.Nullable)
	require.Equal(t, true, spec.Properties["any"].Value.Extensions["x-kubernetes-preserve-unknown-fields"])

	client, err := discovery.NewDiscoveryClientForConfig(w.config("alice"))
	require.NoError(t, err)
	_, lists, err := client.ServerGroupsAndResources()
	require.NoError(t, err)
	served := map[string]bool{}
	for _, list := range lists {
		served[list.GroupVersion] = true
	}
	require.Equal(t, map[string]bool{
		"v1": true, "auth.mnicloud.jp/v1alpha1": true, "vpc.mnicloud.jp/v1alpha1": true, "ctr.mnicloud.jp/v1alpha1": true, "gadgets.mnicloud.jp/v1": true,
		"auth/v1alpha1": true, "vpc/v1alpha1": true, "ctr/v1alpha1": true, "gadgets/v1": true, "auth/v1alpha": true, "vpc/v1alpha": true, "ctr/v1alpha": true,
	}, served)

	// One whose group is called like a part of the API takes nothing away.
	shadow := gadgets(apiextensionsv1.NamespaceScoped)
	shadow.Name, shadow.Spec.Group = "gadgets.apis.mnicloud.jp", "apis.mnicloud.jp"
	_, err = crds.Create(t.Context(), shadow, metav1.CreateOptions{})
	require.NoError(t, err)
	w.eventually("it is described", func() bool {
		return strings.Contains(w.send("alice", http.MethodGet, "/openapi/v3", "").body, "apis.mnicloud.jp")
	})
	require.Equal(t, 200, w.send("alice", http.MethodGet, vpcs, "").code)
	require.NoError(t, crds.Delete(t.Context(), shadow.Name, metav1.DeleteOptions{}))

	require.NoError(t, crds.Delete(t.Context(), "gadgets.gadgets.mnicloud.jp", metav1.DeleteOptions{}))
	w.eventually("a kind that has gone is not served", func() bool { return w.send("alice", http.MethodGet, path, "").code == 404 })
	require.Equal(t, 404, w.send("alice", http.MethodGet, "/apis/gadgets.mnicloud.jp", "").code)
}
