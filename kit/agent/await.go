package agent

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// Await returns when the API server serves a group's version. A watch that starts earlier would back off for long.
func Await(ctx context.Context, config *rest.Config, group schema.GroupVersion) error {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	url = url.JoinPath("apis", group.Group, group.Version)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url.String(), http.NoBody)
	if err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		return serves(httpClient, request), nil
	})
}

// serves tells whether the request is answered with what it asks for.
func serves(httpClient *http.Client, request *http.Request) bool {
	response, err := httpClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}
