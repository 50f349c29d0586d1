package agent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

func TestWhatIsNotDefinedOrMayNotBeReadIsWaitedFor(t *testing.T) {
	answers := map[string]int{"/api/v1/nodes": http.StatusForbidden, "/apis/net.mnicloud.jp/v1alpha1/subnets": http.StatusNotFound}
	asked := make(chan string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(answers[r.URL.Path])
		answers[r.URL.Path] = http.StatusOK
		asked <- r.URL.String()
	}))
	defer server.Close()
	done := make(chan error)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		done <- Await(ctx, &rest.Config{Host: server.URL}, schema.GroupVersionResource{Version: "v1", Resource: "nodes"},
			schema.GroupVersionResource{Group: "net.mnicloud.jp", Version: "v1alpha1", Resource: "subnets"})
	}()
	for _, want := range []string{
		"/api/v1/nodes?limit=1", "/api/v1/nodes?limit=1",
		"/apis/net.mnicloud.jp/v1alpha1/subnets?limit=1", "/apis/net.mnicloud.jp/v1alpha1/subnets?limit=1",
	} {
		require.Equal(t, want, <-asked)
	}
	require.NoError(t, <-done)
}

func TestAServerThatIsNotReadyIsWaitedFor(t *testing.T) {
	answers := make(chan int, 2)
	answers <- http.StatusInternalServerError
	answers <- http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(<-answers)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, AwaitReady(ctx, &rest.Config{Host: server.URL}))
	require.Empty(t, answers)
}
