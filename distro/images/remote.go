package images

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/mnicloud/mnicloud/distro/registry"
)

// Remote is an open connection to a registry.
type Remote struct {
	client   registry.Client
	registry name.Registry
	pool     *http.Transport
	options  []remote.Option
}

// Dial prepares access to a registry; nothing is sent yet. Close frees its connections.
func Dial(client registry.Client) (*Remote, error) {
	host, err := name.NewRegistry(client.Address)
	if err != nil {
		return nil, fmt.Errorf("registry address %q: %w", client.Address, err)
	}
	pool, err := client.Transport()
	if err != nil {
		return nil, err
	}
	auth := authn.Anonymous
	if client.Username != "" {
		auth = &authn.Basic{Username: client.Username, Password: client.Password}
	}
	return &Remote{client: client, registry: host, pool: pool, options: []remote.Option{
		remote.WithAuth(auth), remote.WithTransport(oneScheme{pool, client.PlainHTTP}), remote.WithUserAgent("mni"),
	}}, nil
}

// Close frees idle connections.
func (r *Remote) Close() { r.pool.CloseIdleConnections() }

func (r *Remote) with(ctx context.Context, more ...remote.Option) []remote.Option {
	return append(append([]remote.Option{remote.WithContext(ctx)}, r.options...), more...)
}

// head asks for the descriptor of a tag or digest; nil when there is none.
func (r *Remote) head(ctx context.Context, ref name.Reference) (*v1.Descriptor, error) {
	descriptor, err := remote.Head(ref, r.with(ctx)...)
	if isNotFound(err) {
		return nil, nil
	}
	return descriptor, r.explain(err)
}

// explain turns a transport error into one that says what to do.
func (r *Remote) explain(err error) error {
	if err == nil {
		return nil
	}
	var answer *transport.Error
	if errors.Is(err, registry.ErrUnauthorized) ||
		errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden) {
		if r.client.Username == "" {
			return fmt.Errorf("registry %s wants credentials: give --username and --password-stdin", r.client.Address)
		}
		return fmt.Errorf("registry %s refuses the credentials of %q: wrong password, or not allowed to do this", r.client.Address, r.client.Username)
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) {
		return fmt.Errorf("registry %s does not answer: is the cloud up? `mni status` tells (%w)", r.client.Address, err)
	}
	return fmt.Errorf("registry %s: %w", r.client.Address, err)
}

func isNotFound(err error) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}

// oneScheme keeps requests on HTTPS (or plain HTTP), where the library would guess by the host's name or fall back.
type oneScheme struct {
	next  http.RoundTripper
	plain bool
}

// RoundTrip implements http.RoundTripper.
func (t oneScheme) RoundTrip(request *http.Request) (*http.Response, error) {
	scheme := "https"
	if t.plain {
		scheme = "http"
	}
	if request.URL.Scheme != scheme {
		request = request.Clone(request.Context())
		request.URL.Scheme = scheme
	}
	return t.next.RoundTrip(request)
}
