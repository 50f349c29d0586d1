package gateway_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/platform/gateway"
)

// visit gets a page as a browser does that is not logged in, without following where it is sent.
func (w *world) visit(path string, headers ...string) *reply {
	w.t.Helper()
	follow := w.client.CheckRedirect
	w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	defer func() { w.client.CheckRedirect = follow }()
	return w.send("", http.MethodGet, path, "", append([]string{"Accept", "text/html,*/*"}, headers...)...)
}

func TestThePageThatDescribesTheAPILoadsNothingFromElsewhere(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/", "/docs"} {
		sent := w.visit(path)
		require.Equal(t, 303, sent.code, path)
		require.Equal(t, "/docs/", sent.header.Get("Location"))
	}
	for path, kind := range map[string]string{"/docs/": "text/html", "/docs/page.js": "text/javascript", "/docs/page.css": "text/css", "/vpc/": "text/html"} {
		got := w.visit(path)
		require.Equal(t, 200, got.code, path)
		require.True(t, strings.HasPrefix(got.header.Get("Content-Type"), kind), path)
		policy := got.header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'; script-src 'self'")
		require.NotContains(t, policy, "unsafe")
		require.Equal(t, "nosniff", got.header.Get("X-Content-Type-Options"))
		require.NotRegexp(t, `https?://|//[a-z]`, strings.ReplaceAll(got.body, "// ", ""), "%s loads something from elsewhere", path)
		require.NotRegexp(t, `(?i)<script>|<style|\son[a-z]+=|javascript:|innerHTML|style="`, got.body, "%s has what the policy forbids", path)
		// All that a page names is there.
		for _, m := range regexp.MustCompile(`(?:href|src)="([^"]+)"`).FindAllStringSubmatch(got.body, -1) {
			require.Equal(t, 200, w.visit(m[1]).code, "%s names %s", path, m[1])
		}
	}
	for _, path := range []string{"/docs/console.html", "/docs/doc.go", "/docs/../docs/", "/docs/x", "/docs//page.js", "/docs/%70age.js", "/nothing/", "/net/", "/vpc/x"} {
		require.GreaterOrEqual(t, w.visit(path).code, 400, path)
	}
	require.Equal(t, 405, w.send("", http.MethodPost, "/docs/", "x").code)
}

func TestAConsoleIsServedUnderItsServicesName(t *testing.T) {
	w := newWorld(t)
	var asked []*http.Request
	console := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked = append(asked, r)
		if r.URL.Path == "/vpc/strict" {
			rw.Header().Set("Content-Security-Policy", "default-src 'none'")
			rw.Header().Set("Cache-Control", "max-age=1000")
		}
		rw.Header().Set("Set-Cookie", "session=stolen")
		rw.Header().Set("X-Frame-Options", "ALLOWALL")
		rw.Header().Set("Content-Type", "text/html")
		_, _ = rw.Write([]byte("the console at " + r.URL.Path))
	}))
	defer console.Close()
	config := gateway.Config{Limits: plenty, Upstream: w.ownConfig(), Authenticator: w.tokens, Consoles: map[string]string{"vpc": console.URL, "down": "http://127.0.0.1:1"}}
	w.serve(config)
	got := w.send("alice", http.MethodGet, "/vpc/list?x=y", "", "Cookie", "a=b", "X-Remote-User", "root", "Accept", "text/html")
	require.Equal(t, 200, got.code, got.body)
	require.Equal(t, "the console at /vpc/list", got.body)
	require.Len(t, asked, 1)
	require.Equal(t, "x=y", asked[0].URL.RawQuery)
	for _, name := range []string{"Authorization", "Cookie", "X-Remote-User", "X-Forwarded-For"} {
		require.Empty(t, asked[0].Header.Get(name), name)
	}
	require.Empty(t, got.header.Get("Set-Cookie"))
	require.Equal(t, []string{"DENY"}, got.header.Values("X-Frame-Options"))
	require.Len(t, got.header.Values("Content-Security-Policy"), 1)
	require.Contains(t, got.header.Get("Content-Security-Policy"), "default-src 'self'")
	strict := w.visit("/vpc/strict")
	require.Equal(t, []string{"default-src 'none'"}, strict.header.Values("Content-Security-Policy"))
	require.Equal(t, []string{"max-age=1000"}, strict.header.Values("Cache-Control"))
	require.Equal(t, "/vpc/", w.visit("/vpc").header.Get("Location"))
	require.Contains(t, w.visit("/ctr/").body, "There is no console of the service")
	require.Equal(t, 502, w.visit("/down/").code)
	require.Equal(t, 405, w.send("alice", http.MethodPost, "/vpc/list", "x").code)
	before := len(asked)
	for _, path := range []string{"/vpc/../api", "/vpc//list", "/vpc/./list", "/vpc/%2e%2e/api"} {
		require.GreaterOrEqual(t, w.raw("alice", path), 400, path)
	}
	require.Len(t, asked, before)
	require.Equal(t, 200, w.send("alice", http.MethodGet, vpcs, "").code, "the API is where it was")
	for service, address := range map[string]string{"vpc": "ftp://h", "api": "http://h", "a/b": "http://h", "x": "http://u:p@h"} {
		_, err := gateway.New(gateway.Config{Upstream: config.Upstream, Authenticator: w.tokens, Log: slog.New(slog.DiscardHandler), Consoles: map[string]string{service: address}})
		require.Error(t, err)
	}
}
