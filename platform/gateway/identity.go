package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// ErrUnauthenticated is what an Authenticator returns, or wraps, for a request without valid credentials. Any other error means
// that it could not find out.
var ErrUnauthenticated = errors.New("log in first: the request has no valid token")

// impersonated begins the name of every user and group that the gateway speaks for. Nobody else can be impersonated, whatever an
// Authenticator says: not a system component, not an administrator's certificate.
const impersonated = "mni:"

// Identity is somebody who sent a request.
type Identity struct {
	// User is the user's name as Kubernetes knows it: "mni:user:alice", "mni:serviceaccount:NAMESPACE:ci".
	User string
	// Name of the User object: "alice"; empty for a service account, which has none.
	Name string
	// Session is the ID of the session that the request came by, or Token that of the API token. They are for the audit trail, and no secrets.
	Session, Token string
	// Groups as Kubernetes knows them, each beginning with "mni:".
	Groups []string
	// Administrator tells whether the user is one of the cloud's administrators. It decides what is listed, not what is allowed.
	Administrator bool
	// Tenants are the namespaces of the tenants that the user can name, by the tenants' names: the user's own, for an administrator
	// all. It is empty while a tenant has none yet.
	Tenants map[string]string
}

// Authenticator knows who sent a request.
type Authenticator interface {
	// Authenticate returns who sent the request. It returns ErrUnauthenticated for missing or invalid credentials. While a watch or a
	// stream lasts it is asked again, by a request that has the same Authorization and nothing else.
	Authenticate(r *http.Request) (*Identity, error)
}

// check says what is wrong with an identity that must not reach the API server.
func (id *Identity) check() error {
	if !strings.HasPrefix(id.User, impersonated) {
		return fmt.Errorf("user %q does not begin with %s", id.User, impersonated)
	}
	for _, g := range id.Groups {
		if !strings.HasPrefix(g, impersonated) {
			return fmt.Errorf("group %q does not begin with %s", g, impersonated)
		}
	}
	for tenant, namespace := range id.Tenants {
		if !segment.MatchString(tenant) || namespace != "" && !segment.MatchString(namespace) {
			return fmt.Errorf("tenant %q with namespace %q: not names", tenant, namespace)
		}
	}
	return nil
}

// impersonate sets the headers that make the API server take the request as this identity's. No other headers of this kind stay.
func (id *Identity) impersonate(h http.Header) {
	for name := range h {
		if isIdentityHeader(name) {
			h.Del(name)
		}
	}
	h.Set("Impersonate-User", id.User)
	for _, g := range id.Groups {
		h.Add("Impersonate-Group", g)
	}
}

// isIdentityHeader tells whether a header claims to say who somebody is, which only the gateway may.
func isIdentityHeader(name string) bool {
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	return strings.HasPrefix(name, "impersonate-") || strings.HasPrefix(name, "x-remote-")
}
