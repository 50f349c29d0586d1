package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/platform/gateway"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/session"
)

// users knows who sends a request by its session or API token, a user or a service account, and which tenants that one has.
type users struct {
	sessions *session.Service
	// tenants reads Tenants from a cache.
	tenants client.Reader
}

// Authenticate implements gateway.Authenticator.
func (u *users) Authenticate(r *http.Request) (*gateway.Identity, error) {
	token, err := bearer(r)
	if err != nil {
		return nil, err
	}
	who, err := u.sessions.Authenticate(r.Context(), token)
	if errors.Is(err, session.ErrToken) {
		return nil, gateway.ErrUnauthenticated
	}
	if err != nil {
		return nil, err
	}
	id := &gateway.Identity{
		User: who.UserName, Name: who.User, Groups: who.Groups, Administrator: slices.Contains(who.Groups, authv1.GroupAdministrators),
		Session: who.Session, Token: who.Token,
	}
	id.Tenants, err = u.namespaces(r.Context(), id)
	return id, err
}

// bearer is the request's one token.
func bearer(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", gateway.ErrUnauthenticated
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > 8<<10 {
		return "", gateway.ErrUnauthenticated
	}
	return token, nil
}

// namespaces are those of the Tenants that the user has a role in, or of all for an administrator. Which these are is what the user's
// groups say: the gateway has no opinion of its own.
func (u *users) namespaces(ctx context.Context, id *gateway.Identity) (map[string]string, error) {
	var list authv1.TenantList
	if err := u.tenants.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	namespaces := map[string]string{}
	for i := range list.Items {
		t := &list.Items[i]
		if roleIn(t, id.Groups) != "" || id.Administrator {
			namespaces[t.Name] = t.Status.Namespace
		}
	}
	return namespaces, nil
}

// roleIn is the role that the groups give in the Tenant, empty if none.
func roleIn(t *authv1.Tenant, groups []string) authv1.Role {
	for _, role := range authv1.Roles() {
		if slices.Contains(groups, authv1.GroupOf(t.UID, role)) {
			return role
		}
	}
	return ""
}

// memberships are the Tenants that the groups give a role in, by name.
func (u *users) memberships(ctx context.Context, groups []string) ([]membership, error) {
	var list authv1.TenantList
	if err := u.tenants.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	out := []membership{}
	for i := range list.Items {
		if role := roleIn(&list.Items[i], groups); role != "" {
			out = append(out, membership{list.Items[i].Name, role})
		}
	}
	slices.SortFunc(out, func(a, b membership) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
