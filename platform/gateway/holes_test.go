package gateway_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/platform/gateway"
)

// hole is a mistake that a gateway could have, made at one of its seams: in what it sends to the API server, in whom it takes a caller
// for, or around it.
type hole struct {
	name string
	// told is what the fuzzer must say, a regular expression.
	told     string
	upstream func(w *world, r *http.Request, next http.RoundTripper) (*http.Response, error)
	who      func(w *world, id *gateway.Identity)
	around   func(w *world, next http.Handler, rw http.ResponseWriter, r *http.Request)
	// watched tells that the hole is in the shared watches, which begin when somebody watches.
	watched bool
}

// crossed is what the fuzzer may say of a request that was let through: which request is drawn first is chance, so it is either what the
// answer shows, or that there was an answer, or what was done.
const crossed = `^\w* (sees|may not) |^the state changed`

var holes = []hole{
	{
		name: "everybody is impersonated as an administrator", told: crossed,
		upstream: func(_ *world, r *http.Request, next http.RoundTripper) (*http.Response, error) {
			r = r.Clone(r.Context())
			if r.Header.Get("Impersonate-User") != "" {
				r.Header.Add("Impersonate-Group", "mni:administrators")
			}
			return next.RoundTrip(r)
		},
	},
	{
		name: "a dry run is meant", told: crossed + `|^\w+ may `,
		upstream: func(_ *world, r *http.Request, next http.RoundTripper) (*http.Response, error) {
			r = r.Clone(r.Context())
			query := r.URL.Query()
			query.Del("dryRun")
			r.URL.RawQuery = query.Encode()
			return next.RoundTrip(r)
		},
	},
	{
		name: "a list of Users is not narrowed to one's own", told: `^\w+ sees User`,
		upstream: func(_ *world, r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/users") {
				r = r.Clone(r.Context())
				r.Header.Add("Impersonate-Group", "mni:administrators")
				query := r.URL.Query()
				query.Del("fieldSelector")
				r.URL.RawQuery = query.Encode()
			}
			return next.RoundTrip(r)
		},
	},
	{
		name: "the hash stands in a field that nobody thought of", told: "sees the hash of a password",
		upstream: func(_ *world, r *http.Request, next http.RoundTripper) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err != nil || !strings.Contains(r.URL.Path, "/users") || r.URL.Query().Get("watch") != "" {
				return response, err
			}
			body, err := io.ReadAll(response.Body)
			body = bytes.ReplaceAll(body, []byte(`"password":`), []byte(`"displayName":`))
			response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			return response, err
		},
	},
	{
		name: "a member of one tenant is a viewer of all", told: crossed,
		who: func(w *world, id *gateway.Identity) {
			id.Tenants = maps.Clone(w.namespaces)
			for _, namespace := range w.namespaces {
				id.Groups = append(id.Groups, "mni:tenant:"+namespace[:8]+":viewer")
			}
		},
	},
	{
		name: "a viewer is a member", told: `^carol may not `,
		who: func(_ *world, id *gateway.Identity) {
			for i, g := range id.Groups {
				id.Groups[i] = strings.Replace(g, ":viewer", ":member", 1)
			}
		},
	},
	{
		name: "a request without a token is somebody's", told: crossed,
		around: func(_ *world, next http.Handler, rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				r.Header.Set("Authorization", "Bearer alice")
			}
			next.ServeHTTP(rw, r)
		},
	},
	{
		name: "a forged header is believed", told: crossed,
		around: func(_ *world, next http.Handler, rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Impersonate-User") == "mni:user:root" {
				r.Header.Set("Authorization", "Bearer root")
				r.Header.Del("Impersonate-User")
				r.Header.Del("Impersonate-Group")
			}
			next.ServeHTTP(rw, r)
		},
	},
	{
		name: "a namespace is taken for its tenant, whoever asks", told: crossed,
		around: func(w *world, next http.Handler, rw http.ResponseWriter, r *http.Request) {
			for tenant, namespace := range w.namespaces {
				if strings.Contains(r.URL.Path, namespace) {
					r = r.Clone(r.Context())
					r.URL.Path = strings.Replace(r.URL.Path, namespace, tenant, 1)
					r.RequestURI = ""
					r.Header.Set("Authorization", "Bearer root")
				}
			}
			next.ServeHTTP(rw, r)
		},
	},
	{
		name: "errors say the namespace", told: "sees the namespace of",
		around: func(w *world, next http.Handler, rw http.ResponseWriter, r *http.Request) {
			recorder := httptest.NewRecorder()
			next.ServeHTTP(recorder, r)
			maps.Copy(rw.Header(), recorder.Header())
			rw.WriteHeader(recorder.Code)
			body := recorder.Body.String()
			if recorder.Code == http.StatusForbidden {
				body = strings.ReplaceAll(body, `acme`, w.namespaces["acme"])
			}
			_, _ = io.WriteString(rw, body)
		},
	},
	{
		name: "the shared watch takes an event for another tenant's", told: `sees an object of`, watched: true,
		upstream: func(w *world, r *http.Request, next http.RoundTripper) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err != nil || r.Header.Get("Impersonate-User") != "mni:gateway" || r.URL.Query().Get("watch") == "" {
				return response, err
			}
			body, exchange := response.Body, strings.NewReplacer(w.namespaces["acme"], w.namespaces["globex"], w.namespaces["globex"], w.namespaces["acme"])
			read, write := io.Pipe()
			go func() {
				lines := bufio.NewScanner(body)
				lines.Buffer(nil, 1<<20)
				for lines.Scan() {
					if _, err := exchange.WriteString(write, lines.Text()+"\n"); err != nil {
						break
					}
				}
				write.CloseWithError(errors.Join(lines.Err(), body.Close(), io.EOF))
			}()
			response.Body = read
			return response, nil
		},
	},
	{
		name: "one of many documents is applied as an administrator's", told: crossed,
		upstream: func(_ *world, r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.URL.Query().Get("fieldManager") == "mni-gateway" {
				r = r.Clone(r.Context())
				r.Header.Add("Impersonate-Group", "mni:administrators")
			}
			return next.RoundTrip(r)
		},
	},
	{
		name: "one of many documents goes where it says, whoever sends it", told: crossed + `|^\w+ may `,
		around: func(_ *world, next http.Handler, rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if r.URL.Path == "/apply" && bytes.Contains(body, []byte(`"namespace":"globex"`)) && r.Header.Get("Authorization") != "" {
				r.Header.Set("Authorization", "Bearer bob")
			}
			next.ServeHTTP(rw, r)
		},
	},
}

// roundTripper is a function that is one.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// dig makes the world's gateway one with the hole.
func (w *world) dig(h hole) {
	w.t.Helper()
	config := gateway.Config{Limits: plenty, Upstream: w.ownConfig(), Authenticator: w.tokens}
	if h.upstream != nil {
		config.Upstream.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) { return h.upstream(w, r, next) })
		})
	}
	if h.who != nil {
		config.Authenticator = authenticator(func(r *http.Request) (*gateway.Identity, error) {
			id, err := w.tokens.Authenticate(r)
			if err == nil {
				id.Groups = append([]string(nil), id.Groups...)
				h.who(w, id)
			}
			return id, err
		})
	}
	w.serve(config)
	if h.around != nil {
		next := w.handler
		w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { h.around(w, next, rw, r) })
	}
}

type authenticator func(*http.Request) (*gateway.Identity, error)

// Authenticate implements gateway.Authenticator.
func (a authenticator) Authenticate(r *http.Request) (*gateway.Identity, error) { return a(r) }

func TestTheFuzzerFindsHolesThatWerePlanted(t *testing.T) {
	for _, h := range holes {
		t.Run(h.name, func(t *testing.T) {
			f := newFuzzer(newWorld(t))
			f.dig(h)
			f.every = 50
			seed := rand.Uint64()
			requests := 5000
			if h.watched {
				require.NoError(t, f.watchAll())
				requests = 20000 // few are watches that share one
			}
			err := f.run(seed, requests)
			require.Error(t, err, "not found by seed %d", seed)
			require.Regexp(t, h.told, err.Error())
			said, _, _ := strings.Cut(err.Error(), "\n")
			t.Logf("request %d: %.200s", f.sent, said)
		})
	}
}
