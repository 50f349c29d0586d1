package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mnicloud/mnicloud/platform/audit"
	"github.com/mnicloud/mnicloud/platform/gateway"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/session"
)

// entrances are the paths that people without a token come in by, and who has one goes out by.
func entrances(u *users, trail *audit.Trail, log *slog.Logger) map[string]http.Handler {
	door := &door{u, u.sessions, trail, log}
	return map[string]http.Handler{
		"/login":    post(door.login),
		"/refresh":  post(door.refresh),
		"/password": post(door.password),
		"/logout":   http.HandlerFunc(door.logout),
		"/whoami":   http.HandlerFunc(door.whoami),
		"/tokens":   http.HandlerFunc(door.tokens),
		"/tokens/":  http.HandlerFunc(door.token),
	}
}

type door struct {
	users   *users
	service *session.Service
	trail   *audit.Trail
	log     *slog.Logger
}

// maxForm is how long what is sent to an entrance may be, in bytes.
const maxForm = 8 << 10

// post reads the JSON body of a POST, strictly, and answers in JSON. What is read is never logged or repeated.
func post[In any](answer func(ctx context.Context, in In) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			gateway.Refuse(w, r, http.StatusMethodNotAllowed, "only POST is taken here")
			return
		}
		var in In
		if !readForm(w, r, &in) {
			return
		}
		out, err := answer(r.Context(), in)
		if refused := new(refusal); errors.As(err, &refused) {
			gateway.Refuse(w, r, refused.code, "%s", refused.why)
			return
		}
		writeJSON(w, out)
	})
}

// readForm reads a JSON body; it has refused when it says no.
func readForm(w http.ResponseWriter, r *http.Request, into any) bool {
	if r.Header.Get("Content-Type") != "application/json" {
		// A page of somebody else's can make a browser send any other type, but not this one.
		gateway.Refuse(w, r, http.StatusUnsupportedMediaType, "send the body as application/json")
		return false
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxForm))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		gateway.Refuse(w, r, http.StatusBadRequest, "the body is not the JSON object that is expected here")
		return false
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		gateway.Refuse(w, r, http.StatusBadRequest, "the body goes on after its JSON object")
		return false
	}
	return true
}

func writeJSON(w http.ResponseWriter, out any) {
	if out == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

// refusal is what somebody is told.
type refusal struct {
	code int
	why  string
}

// Error implements error.
func (r *refusal) Error() string { return r.why }

// refused is what somebody is told of an error: of trouble inside nothing, that is for the log.
func (d *door) refused(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, session.ErrLogin), errors.Is(err, session.ErrToken), errors.Is(err, gateway.ErrUnauthenticated):
		return &refusal{http.StatusUnauthorized, err.Error()}
	case errors.Is(err, session.ErrRefused):
		return &refusal{http.StatusUnprocessableEntity, err.Error()}
	case errors.Is(err, session.ErrForbidden):
		return &refusal{http.StatusForbidden, err.Error()}
	case errors.Is(err, session.ErrBusy):
		return &refusal{http.StatusServiceUnavailable, err.Error()}
	}
	// What is wrong with a new password is the webhook's to say, or the definition's.
	if _, why, ok := strings.Cut(err.Error(), "spec.password: "); ok {
		return &refusal{http.StatusUnprocessableEntity, "newPassword: " + why}
	}
	d.log.Error(doing+" failed", "error", err)
	return &refusal{http.StatusServiceUnavailable, "that did not work, and not by your fault; try again"}
}

type loginForm struct {
	Name     string `json:"name"`
	Password string `json:"password"`
}

func (d *door) login(ctx context.Context, in loginForm) (any, error) {
	tokens, err := d.service.Login(ctx, in.Name, in.Password)
	return tokens, d.refused("a login", err)
}

type refreshForm struct {
	Refresh string `json:"refresh"`
}

func (d *door) refresh(ctx context.Context, in refreshForm) (any, error) {
	tokens, err := d.service.Refresh(ctx, in.Refresh)
	return tokens, d.refused("a refresh", err)
}

type passwordForm struct {
	Name        string `json:"name"`
	Password    string `json:"password"`
	NewPassword string `json:"newPassword"`
}

// password changes a User's own password, also for who may do nothing else before.
func (d *door) password(ctx context.Context, in passwordForm) (any, error) {
	return nil, d.refused("a change of a password", d.service.ChangePassword(ctx, in.Name, in.Password, in.NewPassword))
}

// who is behind the request's token; it has refused when it says no.
func (d *door) who(w http.ResponseWriter, r *http.Request, methods ...string) (who session.Identity, ok bool) {
	if !slices.Contains(methods, r.Method) {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		gateway.Refuse(w, r, http.StatusMethodNotAllowed, "only %s is taken here", strings.Join(methods, " and "))
		return who, false
	}
	token, err := bearer(r)
	if err == nil {
		who, err = d.service.Authenticate(r.Context(), token)
	}
	if refused := new(refusal); errors.As(d.refused("finding out who sends a request", err), &refused) {
		gateway.Refuse(w, r, refused.code, "%s", refused.why)
		return who, false
	}
	return who, true
}

// logout ends the session of the token that it is sent with. An API token has none, and is revoked elsewhere.
func (d *door) logout(w http.ResponseWriter, r *http.Request) {
	who, ok := d.who(w, r, http.MethodPost)
	if !ok {
		return
	}
	if who.Session == "" {
		gateway.Refuse(w, r, http.StatusBadRequest, "this is an API token, not a session: revoke it instead")
		return
	}
	if refused := new(refusal); errors.As(d.refused("a logout", d.service.Logout(r.Context(), who.Session)), &refused) {
		gateway.Refuse(w, r, refused.code, "%s", refused.why)
		return
	}
	writeJSON(w, nil)
}

// self is what somebody is told of itself.
type self struct {
	// User is empty for a service account, which is the one of that name of the only tenant.
	User           string `json:"user,omitempty"`
	ServiceAccount string `json:"serviceAccount,omitempty"`
	Administrator  bool   `json:"administrator,omitempty"`
	// Tenants by name. The groups of Kubernetes' have UIDs, which are the names of namespaces, and are for nobody.
	Tenants []membership `json:"tenants"`
	// Session is empty for an API token. Expires is when either ends.
	Session            string    `json:"session,omitempty"`
	Expires            time.Time `json:"expires"`
	MustChangePassword bool      `json:"mustChangePassword,omitempty"`
}

type membership struct {
	Name string      `json:"name"`
	Role authv1.Role `json:"role"`
}

func (d *door) whoami(w http.ResponseWriter, r *http.Request) {
	who, ok := d.who(w, r, http.MethodGet)
	if !ok {
		return
	}
	tenants, err := d.users.memberships(r.Context(), who.Groups)
	if refused := new(refusal); errors.As(d.refused("listing tenants", err), &refused) {
		gateway.Refuse(w, r, refused.code, "%s", refused.why)
		return
	}
	writeJSON(w, self{who.User, who.ServiceAccount, slices.Contains(who.Groups, authv1.GroupAdministrators), tenants, who.Session, who.Expires.UTC(), who.MustChangePassword})
}
