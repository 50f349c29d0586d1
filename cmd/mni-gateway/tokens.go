package main

import (
	"errors"
	"net/http"
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
}

// madeToken is an API token with its text, which is shown this once.
type madeToken struct {
	session.Token
	Text string `json:"token"`
}

// tokenList is the User's API tokens.
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

// tokens lists and makes API tokens of who is logged in.
func (d *door) tokens(w http.ResponseWriter, r *http.Request) {
	who, ok := d.loggedIn(w, r, http.MethodGet, http.MethodPost)
	if !ok {
		return
	}
	if r.Method == http.MethodGet {
		list, err := d.service.Tokens(r.Context(), who.User)
		d.say(w, r, tokenList{list}, d.refused("listing tokens", err))
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
	text, token, err := d.service.CreateToken(r.Context(), who.User, form.Name, life, form.Scope)
	err = d.refused("making a token", err)
	entry.done(token.ID, http.StatusOK, err)
	d.say(w, r, madeToken{token, text}, err)
}

// token revokes an API token of who is logged in.
func (d *door) token(w http.ResponseWriter, r *http.Request) {
	who, ok := d.loggedIn(w, r, http.MethodDelete)
	if !ok {
		return
	}
	id := path.Base(r.URL.Path)
	tenant, err := d.scopeOf(r.Context(), who.User, id)
	if err != nil {
		d.say(w, r, nil, d.refused("finding a token", err))
		return
	}
	entry, ok := d.record(w, r, who, tenant, "delete", id)
	if !ok {
		return
	}
	err = d.service.RevokeToken(r.Context(), who.User, id)
	entry.done("", http.StatusNoContent, d.refused("revoking a token", err))
	if errors.Is(err, session.ErrToken) {
		gateway.Refuse(w, r, http.StatusNotFound, "you have no API token with this ID")
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
