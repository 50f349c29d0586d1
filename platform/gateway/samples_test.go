package gateway_test

import (
	"encoding/json"
	"fmt"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// samples are specs of the kinds that tenants have. A new kind needs one here, or the fuzzer says so.
var samples = map[string]string{
	"vpcs":           `{"cidr": "10.0.0.0/16"}`,
	"subnets":        `{"vpc": "web", "cidr": "10.0.1.0/24"}`,
	"routetables":    `{"vpc": "web"}`,
	"securitygroups": `{}`,
	"containers":     `{"subnet": "web", "image": "registry.example/web:1"}`,
	"externalips":    `{}`,
	"floatingips":    `{"externalIP": "web", "target": {"type": "containers", "name": "web"}}`,
	"natgateways":    `{"vpc": "web", "externalIPs": ["web"]}`,
	"vpcpeerings":    `{"vpc": "web", "peer": {"vpc": "data"}}`,

	"serviceaccounts": `{"role": "viewer"}`,
}

// adminsWrite are the kinds that members of a tenant only read.
var adminsWrite = []string{"serviceaccounts"}

// markerOf is in every object of a tenant and in no other.
func markerOf(tenant string) string { return "only-" + tenant + "-has-this" }

// sample is an object of a kind in a tenant, as clients write it.
func sample(r *attackable, tenant string) map[string]any {
	object := map[string]any{
		"apiVersion": r.gv.String(), "kind": r.kind,
		"metadata": map[string]any{"name": "web", "namespace": tenant, "labels": map[string]any{"of": markerOf(tenant)}},
	}
	if !r.namespaced { // the network has kinds of the same names
		return object
	}
	var spec map[string]any
	if err := json.Unmarshal([]byte(samples[r.plural]), &spec); err == nil {
		object["spec"] = spec
	}
	return object
}

// furnish gives every tenant one object of each kind, with its marker.
func (w *world) furnish(kinds []*attackable) {
	w.t.Helper()
	w.serviceAccounts()
	w.node()
	c, err := dynamic.NewForConfig(w.direct)
	require.NoError(w.t, err)
	for tenant, namespace := range w.namespaces {
		_, err := w.kube.CoreV1().Pods(namespace).Patch(w.ctx, "web", "application/merge-patch+json",
			fmt.Appendf(nil, `{"metadata":{"labels":{"of":%q}}}`, markerOf(tenant)), metav1.PatchOptions{})
		require.NoError(w.t, err)
		_, err = w.kube.CoreV1().Events(namespace).Create(w.ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "web", Labels: map[string]string{"of": markerOf(tenant)}},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web", Namespace: namespace},
		}, metav1.CreateOptions{})
		require.NoError(w.t, err)
		for _, kind := range kinds {
			if !kind.namespaced || kind.short || kind.gv.Group == "" {
				continue
			}
			require.Contains(w.t, samples, kind.plural, "the fuzzer needs a sample of this kind")
			object := sample(kind, namespace)
			_, err := c.Resource(kind.resource()).Namespace(namespace).Create(w.ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
			require.NoError(w.t, err, kind.plural)
		}
		w.tenantObject(c, tenant, namespace)
	}
	for _, resource := range []schema.GroupVersionResource{tenantResource, userResource} { // of a gateway with a hole
		_ = c.Resource(resource).Delete(w.ctx, "new", metav1.DeleteOptions{})
	}
	for _, user := range []string{"alice", "bob", "carol", "root"} {
		w.userObject(c, user)
	}
}

var (
	tenantResource = schema.GroupVersionResource{Group: "auth.mnicloud.jp", Version: "v1alpha1", Resource: "tenants"}
	userResource   = schema.GroupVersionResource{Group: "auth.mnicloud.jp", Version: "v1alpha1", Resource: "users"}
)

// tenantObject makes the Tenant, which its members may see.
func (w *world) tenantObject(c dynamic.Interface, name, namespace string) {
	w.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "auth.mnicloud.jp/v1alpha1", "kind": "Tenant",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"of": markerOf(name)}},
	}}
	_ = c.Resource(tenantResource).Delete(w.ctx, name, metav1.DeleteOptions{})
	made, err := c.Resource(tenantResource).Create(w.ctx, object, metav1.CreateOptions{})
	require.NoError(w.t, err)
	made.Object["status"] = map[string]any{"namespace": namespace}
	_, err = c.Resource(tenantResource).UpdateStatus(w.ctx, made, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	var groups []rbacv1.Subject
	for _, role := range []string{"viewer", "member"} {
		groups = append(groups, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "mni:tenant:" + namespace[:8] + ":" + role})
	}
	w.mayGet("tenants", name, namespace[:8], groups...)
}

// userObject makes the User, which it may see itself.
func (w *world) userObject(c dynamic.Interface, name string) {
	w.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "auth.mnicloud.jp/v1alpha1", "kind": "User",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"of": markerOf("user-" + name)}}, "spec": map[string]any{"password": hash},
	}}
	_ = c.Resource(userResource).Delete(w.ctx, name, metav1.DeleteOptions{})
	_, err := c.Resource(userResource).Create(w.ctx, object, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.mayGet("users", name, "", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mni:user:" + name})
}

func (w *world) mayGet(plural, name, unique string, subjects ...rbacv1.Subject) {
	w.t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "test-" + plural + "-" + name + unique},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"auth.mnicloud.jp"}, Resources: []string{plural}, ResourceNames: []string{name}, Verbs: []string{"get", "list", "watch"},
		}},
	}
	w.clusterRole(role)
	w.bindAll(role.Name, subjects...)
}
