package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// connectionKey is where a request's context keeps how many requests its connection has had.
type connectionKey struct{}

// An exec failed with EOF, now and then, after another stream was refused: the API server had closed the connection that was kept.
func TestAStreamIsNotSentOnAConnectionThatTheAPIServerMayHaveClosed(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests := r.Context().Value(connectionKey{}).(*int)
		if *requests++; *requests == 1 {
			http.NotFound(w, r)
			return
		}
		connection, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = connection.Close()
		}
	}))
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, new(int))
	}
	server.StartTLS()
	defer server.Close()
	up, err := newUpstream(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	require.NoError(t, err)
	for range 3 {
		r, err := up.request(t.Context(), nil, http.MethodPost, "/exec", nil, http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "SPDY/3.1")
		response, err := up.streams.RoundTrip(r)
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, response.StatusCode)
		_, err = io.Copy(io.Discard, response.Body) // or the connection could not be kept
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
	}
}
