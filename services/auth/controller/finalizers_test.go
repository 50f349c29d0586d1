package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

	// Who has the cloud may; what is not the cloud's the tenant may take away.
	require.NoError(t, administrator.Patch(w.ctx, account.DeepCopy(), patchOf(`{"metadata":{"finalizers":["`+authv1.Finalizer+`","example.com/mine"]}}`)))
	require.NoError(t, ada.Patch(w.ctx, account.DeepCopy(), patchOf(`{"metadata":{"finalizers":["`+authv1.Finalizer+`"]}}`)))
	require.NoError(t, ada.Delete(w.ctx, account))
	w.eventually("it goes", func() bool { return !w.read(account) })
}
