package account

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// ErrEnded says that a session is no more: it has expired, was ended, or the User may not come in.
var ErrEnded = errors.New("the session has ended")

// early is how long before its end an access token is renewed: longer than a request takes to arrive, clocks differ.
const early = time.Minute

// Source gives the access tokens of a profile's session.
type Source struct {
	store   Store
	profile string

	mu      sync.Mutex
	session Session
}

// NewSource is a source of the profile's session; ErrNoLogin when there is none.
func NewSource(store Store, profile string) (*Source, error) {
	session, err := store.Read(profile)
	if err != nil {
		return nil, err
	}
	return &Source{store: store, profile: profile, session: session}, nil
}

// Session is the session as it is known here.
func (s *Source) Session() Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

// Tokens are good for a minute at least. They are renewed, and kept, when the present ones are not. ErrEnded is for good.
func (s *Source) Tokens(ctx context.Context) (Tokens, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session.fresh() {
		return s.session.Tokens, nil
	}
	if s.session.ByToken() {
		return Tokens{}, ErrEnded // an API token is not renewed
	}
	unlock, err := s.store.lock(s.profile)
	if err != nil {
		return Tokens{}, err
	}
	defer unlock()
	// Another process may have renewed them.
	if s.session, err = s.store.Read(s.profile); err != nil || s.session.fresh() {
		return s.session.Tokens, err
	}
	client, err := s.session.Client()
	if err != nil {
		return Tokens{}, err
	}
	tokens, err := client.Refresh(ctx, s.session.Refresh)
	if refused := new(Refusal); errors.As(err, &refused) && refused.Code == http.StatusUnauthorized {
		return Tokens{}, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	if err != nil {
		return Tokens{}, err
	}
	s.session.Tokens = tokens
	return tokens, s.store.write(s.profile, s.session)
}

func (s *Session) fresh() bool { return time.Until(s.Expires) > early }

// Wrap makes a transport send the session's access token. It is for requests to the session's gateway, and no other.
func (s *Source) Wrap(base http.RoundTripper) http.RoundTripper { return &authorizing{s, base} }

type authorizing struct {
	source *Source
	base   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (a *authorizing) RoundTrip(r *http.Request) (*http.Response, error) {
	tokens, err := a.source.Tokens(r.Context())
	if gateway, bad := url.Parse(a.source.Session().Server); err == nil && (bad != nil || gateway.Host != r.URL.Host) {
		err = fmt.Errorf("the session's token is not for %s", r.URL.Host)
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+tokens.Access)
	return a.base.RoundTrip(r)
}

// WrappedRoundTripper is for Kubernetes' libraries, which look for the transport that dials.
func (a *authorizing) WrappedRoundTripper() http.RoundTripper { return a.base }
