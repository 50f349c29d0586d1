package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
)

// upstream is the API server.
type upstream struct {
	base *url.URL
	// objects carries requests for objects; streams those that change to another protocol, over HTTP/1.1.
	objects, streams http.RoundTripper
}

// dialTimeout is how long a connection for a stream may take to come up.
const dialTimeout = 10 * time.Second

func newUpstream(config *rest.Config) (*upstream, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	u := &upstream{base: base}
	config = rest.CopyConfig(config)
	config.DisableCompression = true // it is near, and what it says is changed on the way
	if u.objects, err = rest.TransportFor(config); err != nil {
		return nil, err
	}
	u.streams, err = newStreams(config)
	return u, err
}

// newStreams carries requests that change to another protocol, over HTTP/1.1, each on a connection of its own: one that was kept may be
// closed by the API server just then, and what must not happen twice (exec is a POST) is not sent again.
func newStreams(config *rest.Config) (http.RoundTripper, error) {
	security, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig: security, DisableKeepAlives: true, TLSHandshakeTimeout: dialTimeout,
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
	}
	if config.Proxy != nil {
		transport.Proxy = config.Proxy
	}
	if config.Dial != nil {
		transport.DialContext = config.Dial
	}
	return rest.HTTPWrappersForConfig(config, transport)
}

// maxAnswer is how many bytes of one answer are held in memory at most.
const maxAnswer = 64 << 20

// request makes a request to the API server as the identity, or as the gateway itself if there is none.
func (u *upstream) request(ctx context.Context, id *Identity, method, path string, query url.Values, body io.Reader) (*http.Request, error) {
	target := *u.base
	target.Path, target.RawQuery = path, query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return nil, err
	}
	if id != nil {
		id.impersonate(r.Header)
	}
	return r, nil
}

// answer of the API server, read whole.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// do sends a request and reads the answer.
func (u *upstream) do(r *http.Request) (*answer, error) {
	response, err := u.objects.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the answer has more than %d bytes: ask for pages with the parameter limit", maxAnswer)
	}
	return &answer{code: response.StatusCode, header: response.Header, body: body}, nil
}
