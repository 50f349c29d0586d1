package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// A tenant that took the cloud's finalizer away would leave behind what the object stands for; one that set its own would hold the deletion of its
// Tenant.
func TestFinalizersAreNotTheTenants(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "correct horse")
	tenant := w.tenant("red", "ada", "owner")
	account := w.account(tenant, "robot", authv1.RoleMember)
	ada := w.as("ada", authv1.GroupOf(tenant.UID, authv1.RoleOwner))
	robot := w.asAccount(tenant, "robot", authv1.RoleAdmin)
	administrator := w.as("ada", authv1.GroupAdministrators, authv1.GroupOf(tenant.UID, authv1.RoleOwner))

	own := serviceAccount(tenant, "own", authv1.RoleViewer)
	require.NoError(t, ada.Create(w.ctx, own.DeepCopy(), client.DryRunAll))
	own.Finalizers = []string{"example.com/mine"}
	w.eventually("the policy is followed", func() bool { return apierrors.IsForbidden(ada.Create(w.ctx, own.DeepCopy(), client.DryRunAll)) })
	for name, c := range map[string]client.Client{"a user": ada, "a service account": robot} {
		err := c.Patch(w.ctx, account.DeepCopy(), patchOf(`{"metadata":{"finalizers":["`+authv1.Finalizer+`","example.com/mine"]}}`))
		require.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
		err = c.Patch(w.ctx, account.DeepCopy(), patchOf(`{"metadata":{"finalizers":null}}`))
		require.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
	}
	require.ErrorContains(t, ada.Patch(w.ctx, account.DeepCopy(), patchOf(`{"metadata":{"finalizers":null}}`)), "metadata.finalizers")
	require.NoError(t, ada.Patch(w.ctx, account.DeepCopy(), patchOf(`{"metadata":{"labels":{"a":"b"}}}`)), "all else is")
	require.True(t, w.read(account))
	require.True(t, controllerutil.ContainsFinalizer(account, authv1.Finalizer))

	// So it is for kinds of groups that nobody knew of.
	late := w.late(tenant, authv1.GroupOf(tenant.UID, authv1.RoleOwner))
	w.eventually("the kind is served, and ada may make it", func() bool { return ada.Create(w.ctx, late.DeepCopy(), client.DryRunAll) == nil })
	late.SetFinalizers([]string{"example.com/mine"})
	err := ada.Create(w.ctx, late, client.DryRunAll)
	require.True(t, apierrors.IsForbidden(err), err)
	require.ErrorContains(t, err, "metadata.finalizers")

	// Who has the cloud may; what is not the cloud's the tenant may take away.
	require.NoError(t, administrator.Patch(w.ctx, account.DeepCopy(), patchOf(`{"metadata":{"finalizers":["`+authv1.Finalizer+`","example.com/mine"]}}`)))
	require.NoError(t, ada.Patch(w.ctx, account.DeepCopy(), patchOf(`{"metadata":{"finalizers":["`+authv1.Finalizer+`"]}}`)))
	require.NoError(t, ada.Delete(w.ctx, account))
	w.eventually("it goes", func() bool { return !w.read(account) })
}

// late is an object of a kind that is defined now, until the test ends, and that those of a group may make in the tenant.
func (w *world) late(tenant *authv1.Tenant, group string) *unstructured.Unstructured {
	w.t.Helper()
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "things.late.mnicloud.jp"},
		"spec": map[string]any{
			"group": "late.mnicloud.jp", "scope": "Namespaced", "names": map[string]any{"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
	w.create(crd)
	w.t.Cleanup(func() { require.NoError(w.t, w.Delete(w.ctx, crd)) })
	meta := metav1.ObjectMeta{Namespace: tenant.Status.Namespace, Name: "late"}
	w.create(&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"late.mnicloud.jp"}, Resources: []string{"*"}, Verbs: []string{"*"}}}})
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group}},
	})
	thing := &unstructured.Unstructured{}
	thing.SetAPIVersion("late.mnicloud.jp/v1")
	thing.SetKind("Thing")
	thing.SetNamespace(tenant.Status.Namespace)
	thing.SetName("a")
	return thing
}
