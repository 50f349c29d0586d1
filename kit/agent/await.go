package agent

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// Await returns when the API server answers lists of all the given resources, of all namespaces: when they are defined, and may be
// read. A watch that starts earlier would back off for long.
func Await(ctx context.Context, config *rest.Config, resources ...schema.GroupVersionResource) error {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	for _, resource := range resources {
		list := url.JoinPath("apis", resource.Group, resource.Version, resource.Resource)
		if resource.Group == "" {
			list = url.JoinPath("api", resource.Version, resource.Resource)
		}
		list.RawQuery = "limit=1"
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, list.String(), http.NoBody)
		if err != nil {
			return err
		}
		if err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
			return serves(httpClient, request), nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// AwaitReady returns when the API server says that it is ready.
func AwaitReady(ctx context.Context, config *rest.Config) error {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url.JoinPath("readyz").String(), http.NoBody)
	if err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
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
