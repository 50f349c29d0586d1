package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/mnicloud/mnicloud/platform/audit"
	"github.com/mnicloud/mnicloud/platform/gateway"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/session"
)

// recorded is a request for an API token that is good in one tenant, which leaves an entry in that tenant's audit trail. A nil one leaves none.
type recorded struct {
	place  *audit.Place
	tenant audit.Tenant
	entry  audit.Entry
}

// record takes room in a tenant's audit trail, if somebody has a role there. It has refused when it says no.
func (d *door) record(w http.ResponseWriter, r *http.Request, who session.Identity, tenant, verb, name string) (e *recorded, ok bool) {
	if tenant == "" {
		return nil, true
	}
	uid, err := d.users.tenantOf(r.Context(), who.Groups, tenant)
	if refused := new(refusal); errors.As(d.refused("finding a tenant", err), &refused) {
		gateway.Refuse(w, r, refused.code, "%s", refused.why)
		return nil, false
	}
	if uid == "" {
		return nil, true
	}
	place, err := d.trail.Reserve(uid)
	if err != nil {
		w.Header().Set("Retry-After", "1")
		gateway.Refuse(w, r, http.StatusServiceUnavailable, "%s, and what you ask for is not done unrecorded; try again", err)
		return nil, false
	}
	return &recorded{place, audit.Tenant{UID: uid, Name: tenant}, audit.Entry{
		User: who.User, Session: who.Session, Source: gateway.Source(r), Verb: verb, Group: authv1.GroupVersion.Group, Resource: "tokens", Name: name,
	}}, true
}

// done leaves the entry, with the token's ID if it is known only now.
func (e *recorded) done(name string, code int, err error) {
	if e == nil {
		return
	}
	if e.entry.Code = code; name != "" {
		e.entry.Name = name
	}
	if refused := new(refusal); errors.As(err, &refused) {
		e.entry.Code = refused.code
	}
	e.place.Record(e.tenant, e.entry)
}

// tenantOf is the UID of a Tenant in which the groups give a role; empty if there is none of that name.
func (u *users) tenantOf(ctx context.Context, groups []string, name string) (string, error) {
	var list authv1.TenantList
	if err := u.tenants.List(ctx, &list); err != nil {
		return "", err
	}
	for i := range list.Items {
		if t := &list.Items[i]; t.Name == name && roleIn(t, groups) != "" {
			return string(t.UID), nil
		}
	}
	return "", nil
}

// scopeOf is the tenant of the service account that a token is of, or the one to which an API token of the User is narrowed; empty if it is
// not, or there is no such token.
func (d *door) scopeOf(ctx context.Context, user, id string, of *session.Account) (string, error) {
	if of != nil {
		return of.Tenant, nil
	}
	tokens, err := d.service.Tokens(ctx, user)
	for _, t := range tokens {
		if t.ID == id {
			return t.Tenant, err
		}
	}
	return "", err
}
