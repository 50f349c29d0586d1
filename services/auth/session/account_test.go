package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// tenantWithAccount is a Tenant in which ada has a role, and its ServiceAccount ci, as their controllers leave them.
func (w *world) tenantWithAccount(name string, role, of authv1.Role) (*authv1.Tenant, *authv1.ServiceAccount) {
	w.t.Helper()
	tenant := w.tenant(name, role)
	tenant.Status.Namespace = string(tenant.UID)
	require.NoError(w.t, w.Status().Update(w.ctx, tenant))
	return tenant, w.account(tenant, "ci", of)
}

func (w *world) account(tenant *authv1.Tenant, name string, role authv1.Role) *authv1.ServiceAccount {
	w.t.Helper()
	account := &authv1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: tenant.Status.Namespace, Name: name, UID: types.UID("uid-of-" + tenant.Name + "-" + name), Finalizers: []string{authv1.Finalizer},
		},
		Spec: authv1.ServiceAccountSpec{Role: role},
	}
	require.NoError(w.t, w.Create(w.ctx, account))
	return account
}

func (w *world) accountToken(of Account) (string, Token) {
	w.t.Helper()
	text, token, err := w.CreateAccountToken(w.ctx, "ada", "pipeline", time.Hour, of)
	require.NoError(w.t, err)
	return text, token
}

var redsCI = Account{Tenant: "red", Name: "ci"}

func TestAServiceAccountIsItselfInItsTenantAndNowhereElse(t *testing.T) {
	w := newWorld(t)
	red, account := w.tenantWithAccount("red", authv1.RoleAdmin, authv1.RoleMember)
	w.tenantWithAccount("blue", authv1.RoleOwner, authv1.RoleAdmin)
	text, token := w.accountToken(redsCI)
	require.Equal(t, Token{ID: token.ID, Name: "pipeline", Scope: Scope{Tenant: "red"}, ServiceAccount: "ci", CreatedBy: "ada", Expires: w.now.Add(time.Hour).UTC()}, token)

	who, err := w.another().Authenticate(w.ctx, text)
	require.NoError(t, err)
	require.Equal(t, Identity{
		ServiceAccount: "ci", UserName: "mni:serviceaccount:red-uid:ci", Groups: []string{"mni:serviceaccounts", "mni:tenant:red-uid:member"}, Token: token.ID, Expires: token.Expires,
	}, who, "no User, no session, no group of Users, nothing in blue")

	for role, groups := range map[authv1.Role][]string{
		authv1.RoleViewer: {"mni:serviceaccounts", "mni:tenant:red-uid:viewer"},
		authv1.RoleAdmin:  {"mni:serviceaccounts", "mni:tenant:red-uid:admin"},
		authv1.RoleOwner:  {"mni:serviceaccounts"}, // the definition refuses it; whoever stored it, it is none
		"":                {"mni:serviceaccounts"},
	} {
		account.Spec.Role = role
		require.NoError(t, w.Update(w.ctx, account))
		who, err := w.Authenticate(w.ctx, text)
		require.NoError(t, err)
		require.Equal(t, groups, who.Groups, "the role is looked up now")
	}

	// It does not hang on who made it.
	red.Spec.Members = nil
	require.NoError(t, w.Update(w.ctx, red))
	require.NoError(t, w.Delete(w.ctx, w.stored("ada")))
	_, err = w.Authenticate(w.ctx, text)
	require.NoError(t, err)

	var secrets corev1.SecretList
	require.NoError(t, w.List(w.ctx, &secrets))
	for _, s := range secrets.Items {
		require.NotContains(t, fmt.Sprint(s.ObjectMeta, s.Data), text[37:], "it is stored hashed")
	}
}

func TestATokenOfAServiceAccountEndsWithItsAccountItsTenantItsTimeAndARevocation(t *testing.T) {
	change := func(w *world, change func(*authv1.ServiceAccount)) {
		account := &authv1.ServiceAccount{}
		require.NoError(w.t, w.Get(w.ctx, client.ObjectKey{Namespace: "red-uid", Name: "ci"}, account))
		change(account)
		require.NoError(w.t, w.Update(w.ctx, account))
	}
	remove := func(w *world) *authv1.Tenant {
		change(w, func(a *authv1.ServiceAccount) { a.Finalizers = nil })
		require.NoError(w.t, w.Delete(w.ctx, &authv1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "red-uid", Name: "ci"}}))
		red := &authv1.Tenant{}
		require.NoError(w.t, w.Get(w.ctx, client.ObjectKey{Name: "red"}, red))
		return red
	}
	for what, end := range map[string]func(w *world, id string){
		"time":     func(w *world, _ string) { w.pass(time.Hour) },
		"disabled": func(w *world, _ string) { change(w, func(a *authv1.ServiceAccount) { a.Spec.Disabled = true }) },
		"deleted":  func(w *world, _ string) { remove(w) },
		"being deleted": func(w *world, _ string) {
			require.NoError(w.t, w.Delete(w.ctx, &authv1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "red-uid", Name: "ci"}}))
		},
		"made anew under the same name": func(w *world, _ string) {
			red := remove(w)
			account := w.account(red, "other", authv1.RoleMember)
			account.Name, account.UID, account.ResourceVersion = "ci", "another", ""
			require.NoError(w.t, w.Create(w.ctx, account))
		},
		"the tenant is being deleted": func(w *world, _ string) {
			red := &authv1.Tenant{}
			require.NoError(w.t, w.Get(w.ctx, client.ObjectKey{Name: "red"}, red))
			red.Finalizers = []string{authv1.Finalizer}
			require.NoError(w.t, w.Update(w.ctx, red))
			require.NoError(w.t, w.Delete(w.ctx, red))
		},
		"the tenant is gone": func(w *world, _ string) {
			require.NoError(w.t, w.Delete(w.ctx, &authv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "red"}}))
		},
		"another tenant of the name": func(w *world, _ string) {
			require.NoError(w.t, w.Delete(w.ctx, &authv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "red"}}))
			another := &authv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "red", UID: "another"}}
			require.NoError(w.t, w.Create(w.ctx, another))
			another.Status.Namespace = "red-uid"
			require.NoError(w.t, w.Status().Update(w.ctx, another))
		},
		"revoked": func(w *world, id string) { require.NoError(w.t, w.RevokeAccountToken(w.ctx, "ada", id, redsCI)) },
		"revoked, with all": func(w *world, id string) {
			require.NoError(w.t, w.RevokeAccountToken(w.ctx, "ada", id, Account{Tenant: "red"}))
		},
		"its controller":     func(w *world, _ string) { require.NoError(w.t, RevokeAccount(w.ctx, w.Client, "uid-of-red-ci")) },
		"a token of another": nil,
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			red, _ := w.tenantWithAccount("red", authv1.RoleOwner, authv1.RoleMember)
			w.account(red, "cd", authv1.RoleMember)
			text, token := w.accountToken(redsCI)
			_, err := w.Authenticate(w.ctx, text)
			require.NoError(t, err)
			if end == nil {
				_, other := w.accountToken(Account{Tenant: "red", Name: "cd"})
				require.NoError(t, w.RevokeAccountToken(w.ctx, "ada", other.ID, Account{Tenant: "red", Name: "cd"}))
				_, err := w.Authenticate(w.ctx, text)
				require.NoError(t, err, "it stays when another account's goes")
				return
			}
			end(w, token.ID)
			w.refused(text)
		})
	}
}

func TestTokensOfServiceAccountsAreForAdminsAndOwnersOfTheTenant(t *testing.T) {
	w := newWorld(t)
	red, _ := w.tenantWithAccount("red", authv1.RoleOwner, authv1.RoleMember)
	_, token := w.accountToken(redsCI)
	w.user("eve")
	blue := &authv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "blue", UID: "blue-uid"}, Spec: authv1.TenantSpec{Members: []authv1.Member{{User: "eve", Role: authv1.RoleOwner}}}}
	require.NoError(t, w.Create(w.ctx, blue))
	blue.Status = authv1.TenantStatus{Namespace: "blue-uid", Members: []authv1.MemberStatus{{User: "eve", UID: "uid-of-eve", State: authv1.MemberActive}}}
	require.NoError(t, w.Status().Update(w.ctx, blue))
	w.account(blue, "ci", authv1.RoleAdmin)
	_, _, err := w.CreateAccountToken(w.ctx, "eve", "t", time.Hour, Account{Tenant: "blue", Name: "ci"})
	require.NoError(t, err)

	for role, may := range map[authv1.Role]bool{authv1.RoleOwner: true, authv1.RoleAdmin: true, authv1.RoleMember: false, authv1.RoleViewer: false} {
		red.Spec.Members = []authv1.Member{{User: "ada", Role: role}}
		require.NoError(t, w.Update(w.ctx, red))
		_, made, err := w.CreateAccountToken(w.ctx, "ada", "t", time.Hour, redsCI)
		_, listed := w.AccountTokens(w.ctx, "ada", redsCI)
		if !may {
			require.ErrorIs(t, err, ErrForbidden, role)
			require.ErrorIs(t, listed, ErrForbidden, role)
			require.ErrorIs(t, w.RevokeAccountToken(w.ctx, "ada", token.ID, redsCI), ErrForbidden, role)
			continue
		}
		require.NoError(t, err, role)
		require.NoError(t, listed, role)
		require.NoError(t, w.RevokeAccountToken(w.ctx, "ada", made.ID, redsCI), role)
	}
	// A stranger, of a tenant with an account of the same name.
	_, _, err = w.CreateAccountToken(w.ctx, "eve", "t", time.Hour, redsCI)
	require.ErrorContains(t, err, "there is no tenant")
	_, err = w.AccountTokens(w.ctx, "eve", redsCI)
	require.ErrorContains(t, err, "there is no tenant")
	require.ErrorContains(t, w.RevokeAccountToken(w.ctx, "eve", token.ID, redsCI), "there is no tenant")
	require.ErrorIs(t, w.RevokeAccountToken(w.ctx, "eve", token.ID, Account{Tenant: "blue", Name: "ci"}), ErrToken)
	require.ErrorIs(t, w.RevokeAccountToken(w.ctx, "eve", token.ID, Account{Tenant: "blue"}), ErrToken)
	require.ErrorIs(t, w.RevokeToken(w.ctx, "eve", token.ID), ErrToken)
	require.ErrorIs(t, w.RevokeToken(w.ctx, "", token.ID), ErrToken)

	red.Spec.Members = []authv1.Member{{User: "ada", Role: authv1.RoleOwner}}
	require.NoError(t, w.Update(w.ctx, red))
	require.ErrorIs(t, w.RevokeToken(w.ctx, "ada", token.ID), ErrToken, "it is not ada's")
	_, own, err := w.CreateToken(w.ctx, "ada", "own", time.Hour, Scope{Tenant: "red"})
	require.NoError(t, err)
	require.ErrorIs(t, w.RevokeAccountToken(w.ctx, "ada", own.ID, Account{Tenant: "red"}), ErrToken, "nor is ada's an account's")
	list, err := w.AccountTokens(w.ctx, "ada", Account{Tenant: "red"})
	require.NoError(t, err)
	require.Equal(t, []Token{token}, list)
	list, err = w.AccountTokens(w.ctx, "ada", Account{Tenant: "red", Name: "cd"})
	require.NoError(t, err)
	require.Empty(t, list)
	list, err = w.Tokens(w.ctx, "ada")
	require.NoError(t, err)
	require.Equal(t, []Token{own}, list)

	// An administrator of the cloud may in every tenant; one who is disabled, or has to change the password, may nothing.
	w.change("eve", func(u *authv1.User) { u.Spec.Administrator = true })
	_, err = w.AccountTokens(w.ctx, "eve", redsCI)
	require.NoError(t, err)
	w.change("eve", func(u *authv1.User) { u.Spec.MustChangePassword = true })
	_, err = w.AccountTokens(w.ctx, "eve", redsCI)
	require.ErrorIs(t, err, ErrForbidden)
	w.change("ada", func(u *authv1.User) { u.Spec.Disabled = true })
	_, _, err = w.CreateAccountToken(w.ctx, "ada", "t", time.Hour, redsCI)
	require.ErrorIs(t, err, ErrForbidden)
}

func TestATokenIsMadeOnlyOfAServiceAccountThatIsThereToEndIt(t *testing.T) {
	w := newWorld(t)
	red, account := w.tenantWithAccount("red", authv1.RoleOwner, authv1.RoleMember)
	refused := func(says string, of Account, life time.Duration) {
		t.Helper()
		text, _, err := w.CreateAccountToken(w.ctx, "ada", "t", life, of)
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorContains(t, err, says)
		require.Empty(t, text)
	}
	for _, name := range []string{"cd", "", "../ci", "red-uid/ci", "CI"} {
		refused("is none", Account{Tenant: "red", Name: name}, time.Hour)
	}
	for _, name := range []string{"green", "", "../red"} {
		refused("there is no tenant", Account{Tenant: name, Name: "ci"}, time.Hour)
	}
	for _, life := range []time.Duration{0, -time.Hour, MaxTokenLife + time.Hour} {
		refused("expires:", redsCI, life)
	}
	account.Spec.Disabled = true
	require.NoError(t, w.Update(w.ctx, account))
	refused("is disabled", redsCI, time.Hour)
	account.Spec.Disabled, account.Finalizers = false, nil
	require.NoError(t, w.Update(w.ctx, account))
	refused("is not ready yet", redsCI, time.Hour)
	account.Finalizers = []string{authv1.Finalizer}
	require.NoError(t, w.Update(w.ctx, account))
	for range maxTokens {
		w.accountToken(redsCI)
	}
	refused("100 tokens", redsCI, time.Hour)
	w.account(red, "cd", authv1.RoleViewer)
	w.accountToken(Account{Tenant: "red", Name: "cd"})
	require.NoError(t, w.Delete(w.ctx, account))
	refused("is being deleted", redsCI, time.Hour)
}
