package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/mnicloud/mnicloud/platform/gateway/fanout"
)

const (
	// watcher is who the shared watches are made as. It has rights of its own to watch what tenants have; a kind that it may not watch
	// is not shared. Each of its events goes to those only who may watch that namespace themselves.
	watcher = impersonated + "gateway"
	// sharedBytes is how much of a kind's newest events is kept.
	sharedBytes = 2 << 20
	// linger is how long a shared watch stays when nobody follows it.
	linger = 5 * time.Minute
)

// hub is the shared watch that a watch can go on with, and what to call when it is not needed any more. It is nil for a watch that has
// none: of cluster-scoped kinds, by selectors, and of tables, whose columns only the first event of a watch tells.
func (w *aWatch) hub() (*fanout.Hub, func()) {
	for _, parameter := range []string{"labelSelector", "fieldSelector", "continue", "limit", "includeObject"} {
		if w.query.Get(parameter) != "" {
			return nil, func() {}
		}
	}
	if !w.target.namespaced || strings.Contains(w.form.upstream, "as=Table") {
		return nil, func() {}
	}
	everywhere := *w.target
	everywhere.namespace = ""
	return w.shared.Use(everywhere.path() + " " + w.form.upstream)
}

// newShared makes the shared watches.
func newShared(up *upstream, trouble func(kind string, err error)) *fanout.Hubs {
	return &fanout.Hubs{Linger: linger, Make: func(key string) *fanout.Hub {
		path, form, _ := strings.Cut(key, " ")
		return fanout.NewHub(fanout.Upstream{
			Version: func(ctx context.Context) (uint64, error) { return up.versionOf(ctx, path) },
			Watch: func(ctx context.Context, after uint64) (io.ReadCloser, error) {
				return up.watch(ctx, path, form, after)
			},
		}, sharedBytes, func(err error) { trouble(path, err) })
	}}
}

// versionOf is the present version of a kind.
func (u *upstream) versionOf(ctx context.Context, path string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := u.request(ctx, &Identity{User: watcher}, http.MethodGet, path, url.Values{"limit": {"1"}}, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept", typeJSON+";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	a, err := u.do(r)
	if err != nil {
		return 0, err
	}
	var list map[string]any
	if err := json.Unmarshal(a.body, &list); err != nil || a.code != http.StatusOK {
		return 0, fmt.Errorf("GET %s: the API server answered %d", path, a.code)
	}
	version, ok := fanout.Version(versionOf(list))
	if !ok {
		return 0, fmt.Errorf("GET %s: the list has no version", path)
	}
	return version, nil
}

// watch is the events of a kind after a version.
func (u *upstream) watch(ctx context.Context, path, form string, after uint64) (io.ReadCloser, error) {
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {fmt.Sprint(after)}}
	r, err := u.request(ctx, &Identity{User: watcher}, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", form)
	response, err := u.objects.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("watch %s: the API server answered %d", path, response.StatusCode), response.Body.Close())
	}
	return response.Body, nil
}

// whilePermitted asks the API server again and again whether the caller may watch what it does, and calls fail when it may not. A watch
// of the caller's own needs none of this, since it was let in and ends within the hour; that a shared one goes on is for the gateway to say.
func (w *aWatch) whilePermitted(fail func()) (end func()) {
	key := "watch " + fingerprint(w.id.User, w.id.Groups, w.target.Group, w.target.plural, w.target.namespace)
	up, id, t := w.upstream, w.id, w.target
	return w.checks.begin(key, repermit, fail, func(ctx context.Context) bool {
		return up.permits(ctx, id, &authorizationv1.ResourceAttributes{
			Group: t.Group, Version: t.Version, Resource: t.plural, Namespace: t.namespace, Verb: verbWatch,
		})
	})
}

// permits asks the API server whether the identity may do something. No answer is no.
func (u *upstream) permits(ctx context.Context, id *Identity, what *authorizationv1.ResourceAttributes) bool {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: what}}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
	body, err := json.Marshal(review)
	if err != nil {
		return false
	}
	r, err := u.request(ctx, id, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil, readerOf(body))
	if err != nil {
		return false
	}
	r.Header.Set("Content-Type", typeJSON)
	r.Header.Set("Accept", typeJSON)
	a, err := u.do(r)
	if err != nil || a.code != http.StatusCreated || json.Unmarshal(a.body, review) != nil {
		return false
	}
	return review.Status.Allowed
}
