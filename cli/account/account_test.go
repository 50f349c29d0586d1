package account_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/mnicloud/mnicloud/cli/account"
)

// entrance is a gateway's, which takes each refresh token once.
type entrance struct {
	*httptest.Server
	mu sync.Mutex
	// valid is the refresh token that is good now; renewals counts them.
	valid    int
	renewals int
	life     time.Duration
	// clock is how far ahead the gateway's clock is.
	clock time.Duration
	seen  []string
}

func newEntrance(t *testing.T) *entrance {
	t.Helper()
	e := &entrance{life: 10 * time.Minute}
	e.Server = httptest.NewTLSServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *entrance) authority() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw}))
}

func (e *entrance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, r.URL.Path+" "+r.Header.Get("Authorization"))
	var form map[string]string
	_ = json.NewDecoder(r.Body).Decode(&form)
	now := time.Now().Add(e.clock)
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	switch {
	case r.URL.Path == "/elsewhere":
	case r.URL.Path == "/refresh" && form["refresh"] != fmt.Sprint(e.valid):
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"detail":"the session has ended"}`)
	case r.URL.Path == "/refresh":
		e.renewals++
		e.valid++
		_ = json.NewEncoder(w).Encode(account.Tokens{Access: fmt.Sprint("a", e.valid), Expires: now.Add(e.life), Refresh: fmt.Sprint(e.valid)})
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

// login keeps a session whose access token has ended.
func (e *entrance) login(t *testing.T) account.Store {
	t.Helper()
	store := account.Store{Dir: filepath.Join(t.TempDir(), "profiles")}
	session := account.Session{Server: e.URL, Authority: e.authority(), User: "ada", Tokens: account.Tokens{Access: "old", Refresh: "0"}}
	require.NoError(t, store.Write("default", session))
	return store
}

func TestALoginIsKeptForItsOwnersEyesOnlyUntilItIsForgotten(t *testing.T) {
	store := account.Store{Dir: filepath.Join(t.TempDir(), "mni", "profiles")}
	_, err := store.Read("default")
	require.ErrorIs(t, err, account.ErrNoLogin)
	session := account.Session{Server: "https://a", User: "ada", Tenant: "red", Tokens: account.Tokens{Access: "secret", Refresh: "secret"}}
	for _, profile := range []string{"default", "work"} {
		require.NoError(t, store.Write(profile, session))
	}
	got, err := store.Read("work")
	require.NoError(t, err)
	require.Equal(t, session, got)
	require.Equal(t, []string{"default", "work"}, store.Profiles())
	require.NoError(t, filepath.WalkDir(store.Dir, func(path string, d fs.DirEntry, err error) error {
		info, statErr := d.Info()
		require.NoError(t, statErr)
		require.Zero(t, info.Mode().Perm()&0o077, path)
		return err
	}))
	require.NoError(t, store.Remove("work"))
	require.NoError(t, store.Remove("work"), "it is forgotten already")
	require.Equal(t, []string{"default"}, store.Profiles())

	require.NoError(t, os.WriteFile(filepath.Join(store.Dir, "default.json"), []byte("{"), 0o600))
	_, err = store.Read("default")
	require.ErrorContains(t, err, "log in again")
	for _, name := range []string{"", "../default", "A", "-a", "a/b", strings.Repeat("a", 64)} {
		_, err := store.Read(name)
		require.ErrorContains(t, err, "a name is of", name)
		require.ErrorContains(t, store.Write(name, session), "a name is of", name)
	}
}

func TestProcessesAtOnceRenewATokenOnce(t *testing.T) {
	e := newEntrance(t)
	store := e.login(t)
	var group errgroup.Group
	for range 8 { // each a process of its own, as far as what it knows
		source, err := account.NewSource(store, "default")
		require.NoError(t, err)
		for range 4 {
			group.Go(func() error {
				tokens, err := source.Tokens(t.Context())
				if err == nil && tokens.Access != "a1" {
					err = fmt.Errorf("token %q", tokens.Access)
				}
				return err
			})
		}
	}
	require.NoError(t, group.Wait())
	require.Equal(t, 1, e.renewals)
	kept, err := store.Read("default")
	require.NoError(t, err)
	require.Equal(t, "1", kept.Refresh)
	require.Equal(t, "ada", kept.User)
}

func TestASessionThatHasEndedIsToldApartFromAGatewayThatDoesNotAnswer(t *testing.T) {
	e := newEntrance(t)
	store := e.login(t)
	source, err := account.NewSource(store, "default")
	require.NoError(t, err)
	e.valid = 7
	_, err = source.Tokens(t.Context())
	require.ErrorIs(t, err, account.ErrEnded)
	e.Close()
	_, err = source.Tokens(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, account.ErrEnded)
	require.NoError(t, store.Remove("default"))
	_, err = source.Tokens(t.Context())
	require.ErrorIs(t, err, account.ErrNoLogin, "another process logged out")
}

func TestATokensEndIsByThisMachinesClock(t *testing.T) {
	for _, clock := range []time.Duration{-time.Hour, time.Hour} {
		e := newEntrance(t)
		e.clock = clock
		source, err := account.NewSource(e.login(t), "default")
		require.NoError(t, err)
		tokens, err := source.Tokens(t.Context())
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(e.life), tokens.Expires, time.Minute)
		_, err = source.Tokens(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, e.renewals, "it is good still")
	}
}

func TestTheTokenGoesToTheGatewayAndToNobodyElse(t *testing.T) {
	e, other := newEntrance(t), newEntrance(t)
	source, err := account.NewSource(e.login(t), "default")
	require.NoError(t, err)
	get := func(url string) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, strings.NewReader("body"))
		require.NoError(t, err)
		answer, err := source.Wrap(e.Client().Transport).RoundTrip(request)
		if err == nil {
			require.NoError(t, answer.Body.Close())
		}
		require.Empty(t, request.Header, "the request is its sender's")
		return err
	}
	require.NoError(t, get(e.URL+"/elsewhere"))
	require.Equal(t, "/elsewhere Bearer a1", e.seen[len(e.seen)-1])
	require.ErrorContains(t, get(other.URL+"/elsewhere"), "is not for")
	require.Empty(t, other.seen)
}

func TestWhatIsNoGatewayIsNamed(t *testing.T) {
	e := newEntrance(t)
	client, err := account.NewClient(e.URL, e.authority())
	require.NoError(t, err)
	_, err = client.Login(t.Context(), "ada", "x")
	require.ErrorContains(t, err, "is not the API gateway of an mNi Cloud")
	_, err = account.NewClient(e.URL, "no certificate")
	require.ErrorContains(t, err, "no certificate in PEM")
	for text, want := range map[string]string{
		"https://a:7443": "https://a:7443", "https://a/": "https://a", "a:7443": "https://a:7443", "198.51.100.1:7443": "https://198.51.100.1:7443", "[::1]:1": "https://[::1]:1",
	} {
		server, err := account.Server(text)
		require.NoError(t, err)
		require.Equal(t, want, server)
	}
	for _, text := range []string{"", "http://a", "https://a/b", "https://u:p@a", "https://", "https://a?b", "https://a#b", "https://a b"} {
		server, err := account.Server(text)
		require.Error(t, err, "%q gives %q", text, server)
		require.NotContains(t, err.Error(), "u:p")
	}
}
