package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"k8s.io/client-go/rest"

	"github.com/mnicloud/mnicloud/platform/audit"
	"github.com/mnicloud/mnicloud/platform/gateway/fanout"
)

// Config of a Gateway.
type Config struct {
	// Upstream is the API server, with the gateway's own rights: to impersonate users and groups, and to read definitions of kinds.
	Upstream *rest.Config
	// Authenticator knows who sends a request.
	Authenticator Authenticator
	// Open are handlers of paths that are answered without an identity, to come in by: "/login". One that ends in a slash is for what is one
	// segment below it. They get security headers, a bound of time and a rate by address, and know by themselves who may do what.
	Open map[string]http.Handler
	// Consoles are where the consoles of services are, by the services' names: "vpc" is served under /vpc/ from http://HOST:PORT/vpc/.
	Consoles map[string]string
	// Limits of what clients may do; the zero value means the defaults.
	Limits Limits
	// Trail records what is changed in tenants and who reaches into their workloads, and is read under /audit; nil records nothing.
	Trail *audit.Trail
	// Log takes what the operator should know. Requests' contents and credentials are not logged.
	Log *slog.Logger
}

// Gateway serves the cloud's API.
type Gateway struct {
	config   Config
	upstream *upstream
	kinds    *registry
	// limiter is by user, addresses by the address of who is not known, browsers by that of who loads pages.
	// trails is by user, for reading the audit trail.
	limiter, addresses, browsers, trails *limiter
	consoles                             map[string]*url.URL
	consoleFiles                         http.RoundTripper
	// shared are the watches that many callers follow, checks what is asked again while callers' requests last.
	shared *fanout.Hubs
	checks *checks
}

// New makes a Gateway. Run makes it find the kinds.
func New(config Config) (*Gateway, error) {
	if config.Upstream == nil || config.Authenticator == nil || config.Log == nil {
		return nil, errors.New("a gateway needs an API server, an authenticator and a log")
	}
	up, err := newUpstream(config.Upstream)
	if err != nil {
		return nil, err
	}
	kinds, err := newRegistry(config.Upstream)
	if err != nil {
		return nil, err
	}
	consoles, err := newConsoles(config.Consoles)
	if err != nil {
		return nil, err
	}
	g := &Gateway{
		config: config, upstream: up, kinds: kinds, checks: &checks{}, consoles: consoles, consoleFiles: newConsoleFiles(),
		limiter: newLimiter(config.Limits), addresses: newLimiter(byAddress), browsers: newLimiter(byBrowser),
		trails: newLimiter(ofReaders(config.Limits)),
	}
	g.shared = newShared(up, func(kind string, err error) {
		config.Log.Info("a shared watch stopped; it begins anew", "kind", kind, "error", err)
	})
	return g, nil
}

// Run keeps the catalog of kinds as the cluster's definitions are, until the context ends.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.shared.Stop()
	return g.kinds.run(ctx)
}

// Ready tells whether the kinds are known.
func (g *Gateway) Ready() bool { return g.kinds.catalog() != nil }

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer g.recover(r)
	secure(w.Header())
	if handler := g.handlerOf(r); handler != nil {
		g.open(w, r, handler)
		return
	}
	if g.page(w, r) {
		return
	}
	id, p := g.admit(r)
	if p != nil {
		refuse(w, r, p)
		return
	}
	release, p := g.limiter.enter(id.User)
	if p != nil {
		refuse(w, r, p)
		return
	}
	defer release()
	g.route(w, r, id) //nolint:contextcheck // the request has its context
}

// admit finds out who sends a request, and refuses those that claim to be somebody in other ways.
func (g *Gateway) admit(r *http.Request) (*Identity, *problem) {
	for name := range r.Header {
		if isIdentityHeader(name) {
			return nil, forbidden("header %s: who you are is said by your token only", name)
		}
	}
	if g.kinds.catalog() == nil {
		return nil, unavailable("the gateway has not found the kinds of the cloud yet")
	}
	id, err := g.config.Authenticator.Authenticate(r)
	if errors.Is(err, ErrUnauthenticated) {
		return nil, newProblem(http.StatusUnauthorized, "Unauthorized", "", "%s", err)
	}
	if err == nil {
		err = id.check()
	}
	if err != nil {
		g.config.Log.Error("who sends a request is not known", "error", err)
		return nil, unavailable("who you are could not be found out; try again")
	}
	return id, nil
}

// recover ends one request, not the gateway, when a handler panics.
func (g *Gateway) recover(r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		g.config.Log.Error("a request made the gateway panic", "method", r.Method, "error", fmt.Sprint(cause), "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

// secure sets the headers that keep browsers from taking an answer for something else.
func secure(h http.Header) {
	h.Set("Strict-Transport-Security", "max-age=31536000")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
}

// requestTimeout is how long a request that is no stream may take.
const requestTimeout = time.Minute
