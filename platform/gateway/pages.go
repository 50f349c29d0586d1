package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mnicloud/mnicloud/platform/gateway/page"
)

// byBrowser are the limits of requests for pages from one address: a page loads many files at once.
var byBrowser = Limits{PerSecond: 100, Burst: 500, AtOnce: 100}

// docs is where the page is that describes the API.
const docs = "/docs/"

// pageTypes are the types of the pages' files.
var pageTypes = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}

// page answers a request for a page, which needs no identity: "/", what is under /docs/, and the consoles of services under /SERVICE/.
// It says no when the request is for none.
func (g *Gateway) page(w http.ResponseWriter, r *http.Request) bool {
	service, _, below := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	handler := g.pageHandler(r.URL.Path, service, below)
	if handler == nil || r.URL.RawPath != "" || r.Header.Get("Upgrade") != "" {
		return false
	}
	release, p := g.browsers.enter(addressOf(r))
	if p != nil {
		refuse(w, r, p)
		return true
	}
	defer release()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, r, methodNotAllowed("only GET is taken here"))
		return true
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	handler(w, r.WithContext(ctx))
	return true
}

func (g *Gateway) pageHandler(whole, service string, below bool) http.HandlerFunc {
	switch {
	case whole == "/":
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, docs, http.StatusSeeOther) }
	case whole+"/" == docs || strings.HasPrefix(whole, docs):
		return g.docs
	case slices.Contains(notServices, service) || !g.hasConsole(service):
		return nil
	case !below:
		return func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/"+service+"/", http.StatusSeeOther)
		}
	case g.consoles[service] != nil:
		return func(w http.ResponseWriter, r *http.Request) { g.console(w, r, g.consoles[service]) }
	}
	return func(w http.ResponseWriter, r *http.Request) {
		var text bytes.Buffer
		if whole != "/"+service+"/" || page.Console(&text, service) != nil {
			refuse(w, r, notFound("the service %s has no console in this cloud yet", service))
			return
		}
		writePage(w, ".html", text.Bytes())
	}
}

// hasConsole tells whether a console may be under a path: of a service that is configured, or one that has kinds which users see.
func (g *Gateway) hasConsole(service string) bool {
	if g.consoles[service] != nil {
		return true
	}
	c := g.kinds.catalog()
	return c != nil && service != "" && !strings.Contains(service, ".") && c.seenBy(&Identity{}).group(service) != nil
}

// docs serves the files of the page that describes the API.
func (g *Gateway) docs(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path+"/", docs)
	name = strings.TrimSuffix(name, "/")
	if name == "" {
		if !strings.HasSuffix(r.URL.Path, "/") {
			http.Redirect(w, r, docs, http.StatusSeeOther)
			return
		}
		name = "index.html"
	}
	content, err := fs.ReadFile(page.Files, name)
	if err != nil || name == "console.html" {
		refuse(w, r, notFound("there is no such page: %s describes the API", docs))
		return
	}
	writePage(w, path.Ext(name), content)
}

func writePage(w http.ResponseWriter, extension string, content []byte) {
	w.Header().Set("Content-Security-Policy", page.Policy)
	w.Header().Set("Content-Type", pageTypes[extension])
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(content)
}

// consolePolicy is the content security policy of a console that has none of its own.
const consolePolicy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// console hands on a request for a file of a console, which is asked for the same path. Who asks is not told to it: a console's files are
// the same for all, and what its scripts ask of the API comes here. What it answers may set no cookie.
func (g *Gateway) console(w http.ResponseWriter, r *http.Request, at *url.URL) {
	if path.Clean(r.URL.Path) != strings.TrimSuffix(r.URL.Path, "/") {
		refuse(w, r, badRequest("", "the path has parts that mean others"))
		return
	}
	own := w.Header().Clone()
	proxy := &httputil.ReverseProxy{
		Transport: g.consoleFiles,
		Rewrite: func(p *httputil.ProxyRequest) {
			header := http.Header{}
			for _, name := range []string{"Accept", "Accept-Encoding", "Accept-Language", "If-None-Match", "If-Modified-Since", "Range", "If-Range", "User-Agent"} {
				if values := p.Out.Header.Values(name); len(values) > 0 {
					header[name] = values
				}
			}
			p.Out.Header = header
			p.SetURL(at)
			p.Out.Body, p.Out.ContentLength = http.NoBody, 0
		},
		ModifyResponse: func(response *http.Response) error {
			response.Header.Del("Set-Cookie")
			response.Header.Del("Service-Worker-Allowed")
			for name := range own {
				// What says how long a file may be kept, and what its page may load, a console knows better.
				if name == "Content-Security-Policy" || name == "Cache-Control" {
					w.Header().Del(name)
					continue
				}
				response.Header.Del(name)
			}
			if response.Header.Get("Content-Security-Policy") == "" {
				response.Header.Set("Content-Security-Policy", consolePolicy)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil || errors.Is(err, context.DeadlineExceeded) {
				g.config.Log.Error("a console gave no answer", "console", at.Redacted(), "error", err)
			}
			refuse(w, r, newProblem(http.StatusBadGateway, "", "", "the console gave no answer; try again"))
		},
	}
	proxy.ServeHTTP(w, r)
}

// notServices are the names under which something else is.
var notServices = []string{"api", "apis", "openapi", "docs", applyPath, auditPath}

// newConsoles checks where consoles are.
func newConsoles(given map[string]string) (map[string]*url.URL, error) {
	consoles := map[string]*url.URL{}
	for service, address := range given {
		at, err := url.Parse(address)
		if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" {
			return nil, fmt.Errorf("the console of %s: %q is no address of a web server, as http://HOST:PORT", service, address)
		}
		if !segment.MatchString(service) || strings.Contains(service, ".") || slices.Contains(notServices, service) {
			return nil, fmt.Errorf("the console of %q: that is no name of a service", service)
		}
		consoles[service] = at
	}
	return consoles, nil
}

// newConsoleFiles is how consoles are spoken to: nothing of the machine's settings gets between.
func newConsoleFiles() *http.Transport {
	return &http.Transport{ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 32, ForceAttemptHTTP2: true}
}
