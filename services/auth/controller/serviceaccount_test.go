package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/session"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

func serviceAccount(tenant *authv1.Tenant, name string, role authv1.Role) *authv1.ServiceAccount {
	return &authv1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Status.Namespace, Name: name}, Spec: authv1.ServiceAccountSpec{Role: role},
	}
}

// account makes a ServiceAccount and waits until tokens can be made for it.
func (w *world) account(tenant *authv1.Tenant, name string, role authv1.Role) *authv1.ServiceAccount {
	w.t.Helper()
	account := serviceAccount(tenant, name, role)
	w.eventually("it is made", func() bool { return w.Create(w.ctx, account) == nil })
	w.eventually("it is ready", func() bool {
		return w.read(account) && conditions.IsReady(account.Status.Conditions, account.Generation)
	})
	return account
}

// asAccount is a client that is who the ServiceAccount is to Kubernetes.
func (w *world) asAccount(tenant *authv1.Tenant, name string, role authv1.Role) client.Client {
	w.t.Helper()
	c := restConfig()
	c.Impersonate = rest.ImpersonationConfig{
		UserName: authv1.ServiceAccountName(tenant.Status.Namespace, name),
		Groups:   []string{"system:authenticated", authv1.GroupServiceAccounts, authv1.GroupOf(tenant.UID, role)},
	}
	out, err := client.New(c, client.Options{Scheme: testScheme()})
	require.NoError(w.t, err)
	return out
}

// tokens are the names of the Secrets that keep tokens of the Tenant's ServiceAccounts.
func (w *world) tokens(tenant *authv1.Tenant) (names []string) {
	w.t.Helper()
	var secrets corev1.SecretList
	require.NoError(w.t, w.List(w.ctx, &secrets, client.InNamespace(authv1.SystemNamespace), client.MatchingLabels{authv1.LabelTenantUID: string(tenant.UID)}))
	for i := range secrets.Items {
		names = append(names, secrets.Items[i].Name)
	}
	return names
}

func TestServiceAccountsAreMadeByAdminsAndOwnersAndReadByAll(t *testing.T) {
	w := newWorld(t)
	red, blue := w.tenant("red"), w.tenant("blue")
	w.quotaCounts(red)
	w.quotaCounts(blue)
	for _, r := range authv1.Roles() {
		c := w.as("ada", authv1.GroupOf(red.UID, r))
		makes := r == authv1.RoleOwner || r == authv1.RoleAdmin
		var list authv1.ServiceAccountList
		w.eventually(string(r)+" sees", func() bool { return c.List(w.ctx, &list, client.InNamespace(red.Status.Namespace)) == nil })
		for _, of := range authv1.ServiceAccountRoles() {
			account := serviceAccount(red, "by-"+string(r)+"-"+string(of), of)
			err := c.Create(w.ctx, account)
			if makes && err != nil { // the roles are aggregated, and the quota is counted, with a delay
				w.eventually(string(r)+" makes "+string(of), func() bool { return c.Create(w.ctx, account) == nil })
				err = nil
			}
			require.Equal(t, !makes, apierrors.IsForbidden(err), "%s: %v", r, err)
			if makes {
				require.NoError(t, c.Patch(w.ctx, account, patchOf(`{"spec":{"disabled":true,"role":"viewer"}}`)))
				require.True(t, apierrors.IsForbidden(c.Status().Patch(w.ctx, account, patchOf(`{"status":{"phase":"Ready"}}`))), "the status is for nobody")
				require.NoError(t, c.Delete(w.ctx, account))
			}
		}
		require.True(t, apierrors.IsForbidden(c.Create(w.ctx, serviceAccount(blue, "x", authv1.RoleViewer))), "in another tenant")
		require.True(t, apierrors.IsForbidden(c.List(w.ctx, &list, client.InNamespace(blue.Status.Namespace))), "in another tenant")
		require.True(t, apierrors.IsForbidden(c.List(w.ctx, &list)), "in all tenants")
	}
	owner := w.as("ada", authv1.GroupOf(red.UID, authv1.RoleOwner))
	for _, none := range []authv1.Role{authv1.RoleOwner, "root", ""} {
		err := owner.Create(w.ctx, serviceAccount(red, "x", none))
		require.True(t, apierrors.IsInvalid(err) || none != "" && apierrors.IsForbidden(err), "%q: %v", none, err)
	}
	for _, name := range []string{"a.b", "mni:x"} {
		require.Error(t, owner.Create(w.ctx, serviceAccount(red, name, authv1.RoleViewer)))
	}
}

func TestNobodyGivesAServiceAccountAMightierRoleThanItsOwn(t *testing.T) {
	w := newWorld(t)
	red := w.tenant("red")
	w.quotaCounts(red)
	// Somebody with a role of the cloud's owner's making, who may make viewers.
	ns := red.Status.Namespace
	rule := func(resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{authv1.GroupVersion.Group}, Resources: []string{resource}, Verbs: verbs}
	}
	w.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "clerk"}, Rules: []rbacv1.PolicyRule{
		rule("serviceaccounts", "create", "update", "patch"), rule("serviceaccounts/viewer", "update"),
	}})
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "clerk"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "clerk"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: authv1.UserName("clerk")}},
	})
	clerk := w.as("clerk")
	viewer := serviceAccount(red, "viewer", authv1.RoleViewer)
	w.eventually("a viewer is made", func() bool { return clerk.Create(w.ctx, viewer) == nil })
	for _, mightier := range []authv1.Role{authv1.RoleMember, authv1.RoleAdmin} {
		err := clerk.Create(w.ctx, serviceAccount(red, "x", mightier))
		require.True(t, apierrors.IsForbidden(err), err)
		require.ErrorContains(t, err, "spec.role: nobody gives")
		err = clerk.Patch(w.ctx, viewer.DeepCopy(), patchOf(`{"spec":{"role":"`+string(mightier)+`"}}`))
		require.ErrorContains(t, err, "spec.role: nobody gives")
	}
	admin := w.account(red, "admin", authv1.RoleAdmin)
	require.NoError(t, clerk.Patch(w.ctx, admin.DeepCopy(), patchOf(`{"spec":{"displayName":"as before"}}`)), "a role that stays is given by nobody")
	require.NoError(t, clerk.Patch(w.ctx, admin.DeepCopy(), patchOf(`{"spec":{"role":"viewer"}}`)))
}

func TestAServiceAccountMayWhatItsRoleSaysButMakesNobody(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "correct horse")
	red, blue := w.tenant("red", "ada", "owner"), w.tenant("blue")
	w.quotaCounts(red)
	w.quotaCounts(blue)
	ci := w.account(red, "ci", authv1.RoleViewer)
	w.account(blue, "ci", authv1.RoleAdmin)
	for _, r := range authv1.ServiceAccountRoles() {
		c := w.asAccount(red, "ci", r)
		var vpcs vpcv1.VpcList
		w.eventually(string(r)+" sees", func() bool { return c.List(w.ctx, &vpcs, client.InNamespace(red.Status.Namespace)) == nil })
		err := c.Create(w.ctx, vpc(red.Status.Namespace, "by-"+string(r)))
		require.Equal(t, r == authv1.RoleViewer, apierrors.IsForbidden(err), "%s: %v", r, err)
		err = c.Patch(w.ctx, red.DeepCopy(), patchOf(`{"spec":{"displayName":"by `+string(r)+`"}}`))
		require.Equal(t, r != authv1.RoleAdmin, apierrors.IsForbidden(err), "%s: %v", r, err)
		for what, err := range map[string]error{
			"a service account":                 c.Create(w.ctx, serviceAccount(red, "x", authv1.RoleViewer)),
			"its own role":                      c.Patch(w.ctx, ci.DeepCopy(), patchOf(`{"spec":{"role":"admin"}}`)),
			"its own name":                      c.Patch(w.ctx, ci.DeepCopy(), patchOf(`{"spec":{"displayName":"x"}}`)),
			"its end":                           c.Delete(w.ctx, ci.DeepCopy()),
			"the end of all":                    c.DeleteAllOf(w.ctx, &authv1.ServiceAccount{}, client.InNamespace(red.Status.Namespace)),
			"a member":                          c.Patch(w.ctx, red.DeepCopy(), patchOf(`{"spec":{"members":[{"user":"ada","role":"owner"},{"user":"eve","role":"viewer"}]}}`)),
			"no members":                        c.Patch(w.ctx, red.DeepCopy(), patchOf(`{"spec":{"members":null}}`)),
			"an owner":                          c.Patch(w.ctx, red.DeepCopy(), patchOf(`{"spec":{"members":[{"user":"eve","role":"owner"}]}}`)),
			"the end of the tenant":             c.Delete(w.ctx, red.DeepCopy()),
			"the other's resources":             c.List(w.ctx, &vpcs, client.InNamespace(blue.Status.Namespace)),
			"the other's accounts":              c.List(w.ctx, &authv1.ServiceAccountList{}, client.InNamespace(blue.Status.Namespace)),
			"the other tenant":                  c.Get(w.ctx, client.ObjectKey{Name: "blue"}, &authv1.Tenant{}),
			"tokens":                            c.List(w.ctx, &corev1.SecretList{}, client.InNamespace(authv1.SystemNamespace)),
			"Users":                             c.List(w.ctx, &authv1.UserList{}),
			"the User whose name it could have": c.Get(w.ctx, client.ObjectKey{Name: "ci"}, &authv1.User{}),
		} {
			require.True(t, apierrors.IsForbidden(err), "%s: %s: %v", r, what, err)
		}
	}
	require.True(t, w.read(ci))
	require.Equal(t, authv1.ServiceAccountSpec{Role: authv1.RoleViewer}, ci.Spec)
}

func TestATenantThatGoesTakesItsServiceAccountsAndTheirTokensAlong(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "correct horse")
	red, blue := w.tenant("red", "ada", "owner"), w.tenant("blue", "ada", "owner")
	service := session.New(w, w, session.Options{})
	token := func(tenant *authv1.Tenant, account string) {
		_, _, err := service.CreateAccountToken(w.ctx, "ada", "t", time.Hour, session.Account{Tenant: tenant.Name, Name: account})
		require.NoError(t, err)
	}
	for _, tenant := range []*authv1.Tenant{red, blue} {
		w.quotaCounts(tenant)
		for _, name := range []string{"ci", "cd"} {
			w.account(tenant, name, authv1.RoleMember)
			token(tenant, name)
			token(tenant, name)
		}
		require.Len(t, w.tokens(tenant), 4)
	}
	require.NoError(t, w.Delete(w.ctx, serviceAccount(red, "cd", "")))
	w.eventually("the tokens of one end with it", func() bool { return len(w.tokens(red)) == 2 })
	require.NoError(t, w.Delete(w.ctx, w.stored("ada")))
	w.eventually("ada is gone", func() bool { return !w.read(&authv1.User{ObjectMeta: metav1.ObjectMeta{Name: "ada"}}) })
	require.Len(t, w.tokens(red), 2, "they do not hang on who made them")
	require.NoError(t, w.Delete(w.ctx, red))
	w.eventually("red is gone", func() bool { return !w.read(red) })
	require.Empty(t, w.tokens(red))
	require.Len(t, w.tokens(blue), 4, "the other's stay")
}

func TestATokenOfAServiceAccountThatIsGoneIsCollected(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "correct horse")
	red := w.tenant("red", "ada", "owner")
	w.quotaCounts(red)
	service := session.New(w, w, session.Options{})
	made := func(name string) *corev1.Secret {
		w.account(red, name, authv1.RoleMember)
		_, token, err := service.CreateAccountToken(w.ctx, "ada", "t", time.Hour, session.Account{Tenant: "red", Name: name})
		require.NoError(t, err)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: authv1.SystemNamespace, Name: "token-" + token.ID}}
		require.True(t, w.read(secret))
		return secret
	}
	again := func(secret *corev1.Secret, name string) *corev1.Secret {
		copied := secret.DeepCopy()
		copied.ObjectMeta = metav1.ObjectMeta{Namespace: secret.Namespace, Name: name, Labels: secret.Labels, Annotations: secret.Annotations}
		return copied
	}
	lives, dies := made("lives"), made("dies")

	// Made at the moment at which its account goes: after the controller has looked.
	require.NoError(t, w.Delete(w.ctx, serviceAccount(red, "dies", "")))
	w.eventually("its token is gone", func() bool { return !w.read(dies) })
	w.eventually("it is gone", func() bool { return !w.read(serviceAccount(red, "dies", "")) })
	late := again(dies, "token-late")
	w.create(late)
	w.eventually("it is collected", func() bool { return !w.read(late) })

	// Another account of the name keeps nothing of the one before.
	w.account(red, "dies", authv1.RoleMember)
	late = again(dies, "token-later")
	w.create(late)
	w.eventually("it is collected", func() bool { return !w.read(late) })

	// An account whose finalizer somebody took away, while no controller ran.
	lost := made("lost")
	w.stop()
	account := serviceAccount(red, "lost", "")
	require.True(t, w.read(account))
	require.NoError(t, w.Patch(w.ctx, account, patchOf(`{"metadata":{"finalizers":null}}`)))
	require.NoError(t, w.Delete(w.ctx, account))
	w.start(nil, true)
	w.eventually("it is collected", func() bool { return !w.read(lost) })
	require.True(t, w.read(lives), "that of one that lives stays")

	// And while one runs.
	lost = made("lost")
	account = serviceAccount(red, "lost", "")
	require.True(t, w.read(account))
	require.NoError(t, w.Delete(w.ctx, account))
	w.eventually("it is collected", func() bool { return !w.read(lost) })
	require.True(t, w.read(lives), "that of one that lives stays")
}

func TestAServiceAccountSaysHowItIsAndWaitsForWhatItDependsOn(t *testing.T) {
	w := newWorld(t)
	red := w.tenant("red")
	w.quotaCounts(red)
	account := serviceAccount(red, "ci", authv1.RoleMember)
	account.Spec.DependsOn = []dependency.Dependency{{Kind: "Vpc", Name: "main"}}
	w.eventually("it is made", func() bool { return w.Create(w.ctx, account) == nil })
	says := func(reason string, phase status.Phase) func() bool {
		return func() bool {
			if !w.read(account) || account.Status.ObservedGeneration != account.Generation || account.Status.Phase != phase {
				return false
			}
			for _, c := range account.Status.Conditions {
				if c.Type == status.ConditionReady {
					return c.Reason == reason
				}
			}
			return false
		}
	}
	w.eventually("it waits", says(dependency.ReasonUnknown, status.Pending))
	require.Empty(t, account.Finalizers, "so that no tokens are made")
	met := fmt.Sprintf(`{"status":{"dependencies":{"observedGeneration":%d,"met":true}}}`, account.Generation)
	require.NoError(t, w.Status().Patch(w.ctx, account, patchOf(met)))
	w.eventually("it is ready", says("Ready", status.Ready))
	require.Contains(t, account.Finalizers, authv1.Finalizer)
	require.NoError(t, w.Patch(w.ctx, account, patchOf(`{"spec":{"disabled":true}}`)))
	w.eventually("it says so", func() bool {
		return says("Ready", status.Ready)() && conditions.Message(account.Status.Conditions) != ""
	})

	// Something depends on it: it stays, without tokens, until that goes.
	require.NoError(t, w.Patch(w.ctx, account, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+authv1.Finalizer+`","`+dependency.Guard+`"]}}`))))
	require.NoError(t, w.Delete(w.ctx, account))
	w.eventually("it says what keeps it", says(dependency.ReasonHasDependents, status.Deleting))
	require.Contains(t, account.Finalizers, authv1.Finalizer)
	require.NoError(t, w.Patch(w.ctx, account, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+authv1.Finalizer+`"]}}`))))
	w.eventually("it is gone", func() bool { return !w.read(account) })
}
