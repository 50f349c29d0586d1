package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

func TestAnAPITokenIsShownOnceStoredHashedAndExpires(t *testing.T) {
	w := newWorld(t)
	text, token, err := w.CreateToken(w.ctx, "ada", "ci", time.Hour, Scope{})
	require.NoError(t, err)
	who, err := w.Authenticate(w.ctx, text)
	require.NoError(t, err)
	require.Equal(t, "mni:user:ada", who.UserName)
	var secrets corev1.SecretList
	require.NoError(t, w.List(w.ctx, &secrets))
	for _, s := range secrets.Items {
		for _, value := range s.Data {
			require.NotContains(t, string(value), text[37:])
		}
		require.NotContains(t, fmt.Sprint(s.ObjectMeta), text[37:])
	}
	list, err := w.Tokens(w.ctx, "ada")
	require.NoError(t, err)
	require.Equal(t, []Token{token}, list)
	require.ErrorIs(t, w.RevokeToken(w.ctx, "eve", token.ID), ErrToken, "somebody else's")
	w.change("ada", func(u *authv1.User) { u.Spec.Password = nobodys() })
	_, err = w.Authenticate(w.ctx, text)
	require.NoError(t, err, "it does not hang on the password")
	require.NoError(t, w.RevokeToken(w.ctx, "ada", token.ID))
	w.refused(text)

	text, _, err = w.CreateToken(w.ctx, "ada", "short", time.Minute, Scope{})
	require.NoError(t, err)
	w.pass(time.Minute)
	w.refused(text)
	for _, life := range []time.Duration{0, -time.Hour, MaxTokenLife + time.Hour} {
		_, _, err = w.CreateToken(w.ctx, "ada", "t", life, Scope{})
		require.ErrorContains(t, err, "expires:")
	}
	for _, name := range []string{"", strings.Repeat("a", 129), "a\x1b[2J", "a\u202eb", "a\nb", "a\xff"} {
		_, _, err = w.CreateToken(w.ctx, "ada", name, time.Hour, Scope{})
		require.ErrorContains(t, err, "name:", "%q", name)
	}
}

func TestAnAPITokenMayDoNoMoreThanItsUserAndItsScope(t *testing.T) {
	w := newWorld(t)
	red := w.tenant("red", authv1.RoleAdmin)
	w.tenant("blue", authv1.RoleViewer)
	groups := func(text string) []string {
		who, err := w.Authenticate(w.ctx, text)
		require.NoError(t, err)
		return who.Groups
	}
	texts := map[Scope]string{}
	for scope, want := range map[Scope][]string{
		{}:                               {"mni:self:uid-of-ada", "mni:tenant:blue-uid:viewer", "mni:tenant:red-uid:admin", "mni:users"},
		{Tenant: "red"}:                  {"mni:tenant:red-uid:admin", "mni:users"},
		{Tenant: "red", Role: "member"}:  {"mni:tenant:red-uid:member", "mni:users"},
		{Tenant: "red", Role: "owner"}:   {"mni:tenant:red-uid:admin", "mni:users"},
		{Tenant: "blue", Role: "member"}: {"mni:tenant:blue-uid:viewer", "mni:users"},
		{Role: "viewer"}:                 {"mni:tenant:blue-uid:viewer", "mni:tenant:red-uid:viewer", "mni:users"},
	} {
		text, token, err := w.CreateToken(w.ctx, "ada", "t", time.Hour, scope)
		require.NoError(t, err)
		require.Equal(t, scope, token.Scope)
		require.Equal(t, want, groups(text), scope)
		texts[scope] = text
	}
	// An administrator's token with a scope is no administrator's.
	w.change("ada", func(u *authv1.User) { u.Spec.Administrator = true })
	require.Contains(t, groups(texts[Scope{}]), "mni:administrators")
	require.Equal(t, []string{"mni:tenant:red-uid:member", "mni:users"}, groups(texts[Scope{Tenant: "red", Role: "member"}]))
	require.Equal(t, []string{"mni:tenant:red-uid:owner", "mni:users"}, groups(texts[Scope{Tenant: "red"}]))
	w.change("ada", func(u *authv1.User) { u.Spec.Administrator = false })
	// What is taken from the User is taken from its tokens, and a Tenant made anew is another one.
	red.Spec.Members = nil
	require.NoError(t, w.Update(w.ctx, red))
	require.Equal(t, []string{"mni:users"}, groups(texts[Scope{Tenant: "red"}]))
	for _, scope := range []Scope{{Tenant: "green"}, {Tenant: "red"}, {Role: "root"}, {Tenant: "../red"}} {
		_, _, err := w.CreateToken(w.ctx, "ada", "t", time.Hour, scope)
		require.ErrorIs(t, err, ErrRefused, scope)
	}
}

func TestAUserHasABoundedNumberOfTokensAndNoneBeforeThePasswordIsChanged(t *testing.T) {
	w := newWorld(t)
	for range maxTokens {
		_, _, err := w.CreateToken(w.ctx, "ada", "t", time.Hour, Scope{})
		require.NoError(t, err)
	}
	_, _, err := w.CreateToken(w.ctx, "ada", "t", time.Hour, Scope{})
	require.ErrorIs(t, err, ErrRefused)
	w.pass(time.Hour)
	text, _, err := w.CreateToken(w.ctx, "ada", "t", time.Hour, Scope{})
	require.NoError(t, err, "those that have expired do not count")
	w.change("ada", func(u *authv1.User) { u.Spec.MustChangePassword = true })
	_, _, err = w.CreateToken(w.ctx, "ada", "t", time.Hour, Scope{})
	require.ErrorIs(t, err, ErrRefused)
	who, err := w.Authenticate(w.ctx, text)
	require.NoError(t, err)
	require.Empty(t, who.Groups)
	w.change("ada", func(u *authv1.User) { u.Spec.MustChangePassword, u.Spec.Disabled = false, true })
	w.refused(text)
	w.change("ada", func(u *authv1.User) { u.Spec.Disabled = false })
	list, err := w.Tokens(w.ctx, "ada")
	require.NoError(t, err)
	require.Len(t, list, 1)
	// Somebody else under the same name has none.
	require.NoError(t, w.Delete(w.ctx, w.stored("ada")))
	another := &authv1.User{ObjectMeta: metav1.ObjectMeta{Name: "ada", UID: "another"}, Spec: authv1.UserSpec{Password: hashOnce()}}
	require.NoError(t, w.Create(w.ctx, another))
	list, err = w.Tokens(w.ctx, "ada")
	require.NoError(t, err)
	require.Empty(t, list)
	w.refused(text)
}
