package gateway

import (
	"context"
	"net/http"
	"net/netip"
	"path"
	"time"
)

// byAddress are the limits of requests to open paths from one address: nobody is known there yet, and passwords are tried there.
var byAddress = Limits{PerSecond: 5, Burst: 50, AtOnce: 20}

// handlerOf is the handler of an open path; nil for all others.
func (g *Gateway) handlerOf(r *http.Request) http.Handler {
	if r.URL.RawPath != "" {
		return nil
	}
	handler, ok := g.config.Open[r.URL.Path]
	if above, below := path.Split(r.URL.Path); !ok && below != "" {
		handler = g.config.Open[above]
	}
	return handler
}

// open answers a request to a path that needs no identity.
func (g *Gateway) open(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	release, p := g.addresses.enter(addressOf(r))
	if p != nil {
		refuse(w, r, p)
		return
	}
	defer release()
	control := http.NewResponseController(w)
	// Without a connection, as in a test, there is nothing to bound.
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	handler.ServeHTTP(w, r.WithContext(ctx))
}

// addressOf is what stands for a client that is not known: its address, of IPv6 the /64 that one machine has whole.
func addressOf(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	address := from.Addr().Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	return netip.PrefixFrom(address, 64).Masked().String()
}

// Refuse answers with an HTTP error and why, in the form that the client asks for. It is for handlers of open paths.
func Refuse(w http.ResponseWriter, r *http.Request, code int, format string, args ...any) {
	refuse(w, r, newProblem(code, "", "", format, args...))
}
