package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/mnicloud/mnicloud/platform/gateway"
	"github.com/mnicloud/mnicloud/services/auth/session"
)

// usualTokenLife is how long an API token lasts that is asked for without an end.
const usualTokenLife = 30 * 24 * time.Hour

// tokenForm asks for an API token.
type tokenForm struct {
	Name string `json:"name"`
	// ExpirationSeconds is its life, in seconds; 0 means the usual one.
	ExpirationSeconds int64 `json:"expirationSeconds"`
	session.Scope
	// ServiceAccount is the one of the tenant that it is of; empty for a token of who is logged in.
	ServiceAccount string `json:"serviceAccount"`
}

// madeToken is an API token with its text, which is shown this once.
type madeToken struct {
	session.Token
	Text string `json:"token"`
}

// tokenList is the API tokens of a User, or of service accounts.
type tokenList struct {
	Tokens []session.Token `json:"tokens"`
}

// loggedIn is who is behind the request, by a session: an API token that leaked must not be able to make others of itself.
func (d *door) loggedIn(w http.ResponseWriter, r *http.Request, methods ...string) (who session.Identity, ok bool) {
	who, ok = d.who(w, r, methods...)
	switch {
	case !ok:
		return who, false
	case who.Session == "":
		gateway.Refuse(w, r, http.StatusForbidden, "an API token does not make, list or revoke API tokens: log in")
		return who, false
	case who.MustChangePassword:
		gateway.Refuse(w, r, http.StatusForbidden, "the password must be changed before anything else")
		return who, false
	}
	return who, true
}

// ofAccount says whose tokens a request is about: those of a service account, or of all of a tenant, by the query's tenant and
// serviceAccount; nil for those of who is logged in. It has refused when it says no.
func ofAccount(w http.ResponseWriter, r *http.Request) (of *session.Account, ok bool) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	for name, values := range query {
		if name != "tenant" && name != "serviceAccount" || len(values) != 1 || values[0] == "" {
			err = errors.Join(err, errors.New(name))
		}
	}
	switch {
	case err != nil:
		gateway.Refuse(w, r, http.StatusBadRequest, "the query may have a tenant and a serviceAccount of it, once each, and nothing else")
		return nil, false
	case len(query) == 0:
		return nil, true
	case query.Get("tenant") == "":
		gateway.Refuse(w, r, http.StatusBadRequest, "the query names a serviceAccount; name its tenant too")
		return nil, false
	}
	return &session.Account{Tenant: query.Get("tenant"), Name: query.Get("serviceAccount")}, true
}

// tokens lists and makes API tokens of who is logged in, or of service accounts.
func (d *door) tokens(w http.ResponseWriter, r *http.Request) {
	who, ok := d.loggedIn(w, r, http.MethodGet, http.MethodPost)
	if !ok {
		return
	}
	of, ok := ofAccount(w, r)
	if !ok {
		return
	}
	if r.Method == http.MethodGet {
		list, err := d.list(r.Context(), who.User, of)
		d.say(w, r, tokenList{list}, d.refused("listing tokens", err))
		return
	}
	if of != nil {
		gateway.Refuse(w, r, http.StatusBadRequest, "say in the body whose token is made, not in the query")
		return
	}
	var form tokenForm
	if !readForm(w, r, &form) {
		return
	}
	const longest = int64(session.MaxTokenLife / time.Second)
	if form.ExpirationSeconds < 0 || form.ExpirationSeconds > longest {
		gateway.Refuse(w, r, http.StatusUnprocessableEntity, "expirationSeconds: %d; must be at most %d, or be left out for %d", form.ExpirationSeconds, longest, int64(usualTokenLife/time.Second))
		return
	}
	life := time.Duration(form.ExpirationSeconds) * time.Second
	if life == 0 {
		life = usualTokenLife
	}
	entry, ok := d.record(w, r, who, form.Tenant, "create", "")
	if !ok {
		return
	}
	text, token, err := d.create(r.Context(), who.User, form, life)
	err = d.refused("making a token", err)
	entry.done(token.ID, http.StatusOK, err)
	d.say(w, r, madeToken{token, text}, err)
}

func (d *door) list(ctx context.Context, user string, of *session.Account) ([]session.Token, error) {
	if of == nil {
		return d.service.Tokens(ctx, user)
	}
	return d.service.AccountTokens(ctx, user, *of)
}

func (d *door) create(ctx context.Context, user string, form tokenForm, life time.Duration) (string, session.Token, error) {
	if form.ServiceAccount == "" {
		return d.service.CreateToken(ctx, user, form.Name, life, form.Scope)
	}
	if form.Tenant == "" || form.Role != "" {
		return "", session.Token{}, fmt.Errorf("%w: serviceAccount: say its tenant, and no role: a token may do what its service account may", session.ErrRefused)
	}
	return d.service.CreateAccountToken(ctx, user, form.Name, life, session.Account{Tenant: form.Tenant, Name: form.ServiceAccount})
}

// token revokes an API token of who is logged in, or of a service account.
func (d *door) token(w http.ResponseWriter, r *http.Request) {
	who, ok := d.loggedIn(w, r, http.MethodDelete)
	if !ok {
		return
	}
	of, ok := ofAccount(w, r)
	if !ok {
		return
	}
	id, whose := path.Base(r.URL.Path), "you have"
	if of != nil {
		whose = "what the query names has"
	}
	tenant, err := d.scopeOf(r.Context(), who.User, id, of)
	if err != nil {
		d.say(w, r, nil, d.refused("finding a token", err))
		return
	}
	entry, ok := d.record(w, r, who, tenant, "delete", id)
	if !ok {
		return
	}
	if of == nil {
		err = d.service.RevokeToken(r.Context(), who.User, id)
	} else {
		err = d.service.RevokeAccountToken(r.Context(), who.User, id, *of)
	}
	entry.done("", http.StatusNoContent, d.refused("revoking a token", err))
	if errors.Is(err, session.ErrToken) {
		gateway.Refuse(w, r, http.StatusNotFound, "%s no API token with this ID", whose)
		return
	}
	d.say(w, r, nil, d.refused("revoking a token", err))
}

// say answers, or refuses.
func (d *door) say(w http.ResponseWriter, r *http.Request, out any, err error) {
	if refused := new(refusal); errors.As(err, &refused) {
		gateway.Refuse(w, r, refused.code, "%s", refused.why)
		return
	}
	writeJSON(w, out)
}
