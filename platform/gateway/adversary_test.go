package gateway_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/platform/gateway"
)

// noToken fails when a tenant's namespace is in the token of a next page.
func (w *world) noToken(token string) {
	w.t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(w.t, err)
	w.noNamespace(token + string(raw))
}

// raw sends a request whose path is sent as it is written.
func (w *world) raw(user, path string) int {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.url, nil)
	require.NoError(w.t, err)
	r.URL.Opaque = "//" + r.URL.Host + path
	r.Header.Set("Authorization", "Bearer "+user)
	response, err := w.client.Do(r)
	require.NoError(w.t, err)
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func TestTricksWithPathsAreRefused(t *testing.T) {
	w := newWorld(t)
	globex := strings.Replace(vpcs, "acme", "globex", 1)
	require.Equal(t, 200, w.raw("bob", globex), "the positive control")
	require.Equal(t, 200, w.raw("alice", vpcs), "the positive control")
	for _, path := range []string{
		vpcs + "/../../globex/vpcs", vpcs + "/%2e%2e/%2e%2e/globex/vpcs", vpcs + "/..%2f..%2fglobex%2fvpcs", vpcs + "%2f..%2f..%2fglobex",
		"/" + globex, strings.Replace(globex, "/vpcs", "//vpcs", 1), globex + "/", globex + "/.", globex + "%00", globex + ";x=y", globex + "%20",
		strings.Replace(globex, "globex", "globex%2f..%2facme", 1), strings.Replace(globex, "globex", w.namespaces["globex"], 1),
		strings.Replace(globex, "globex", w.namespaces["acme"], 1), strings.Replace(globex, "globex", "GLOBEX", 1), strings.Replace(globex, "globex", "acme,globex", 1),
		strings.Replace(globex, "globex", "*", 1), strings.Replace(globex, "/namespaces", "/watch/namespaces", 1), globex,
		"/api/v1/namespaces/acme/secrets", "/api/v1/namespaces/acme/configmaps", "/api/v1/namespaces", "/api/v1/nodes", "/api/v1/namespaces/acme/pods/x/proxy",
		"/api/v1/namespaces/acme/pods/x/ephemeralcontainers", "/api/v1/namespaces/kube-system/pods", "/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/acme/deployments",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/net.mnicloud.jp/v1alpha1/subnets", "/apis/auth.mnicloud.jp/v1alpha1/users/root",
		"/healthz", "/metrics", "/logs", "/debug/pprof/", "/openapi/v2", "/openapi/v3/api/v1", "/.well-known/openid-configuration",
	} {
		code := w.raw("alice", path)
		require.GreaterOrEqual(t, code, 400, path)
		require.Less(t, code, 500, path)
	}
}

func TestNobodySaysWhoTheyAreButByTheirToken(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, 200, w.send("alice", http.MethodGet, vpcs, "").code, "the positive control")
	for _, name := range []string{
		"Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes", "X-Remote-User", "X-Remote-Group", "X-Remote-Extra-A", "X_Remote_User",
	} {
		refused := w.send("alice", http.MethodGet, vpcs, "", name, "system:masters")
		require.Equal(t, 403, refused.code, name)
	}
	// What an authenticator says by mistake does not reach the API server either.
	for _, id := range []*gateway.Identity{
		{User: "admin", Name: "admin"},
		{User: "mni:user:eve", Name: "eve", Groups: []string{"system:masters"}},
		{User: "mni:user:eve", Name: "eve", Tenants: map[string]string{"acme": "../kube-system"}},
	} {
		w.tokens.set("eve", id)
		require.Equal(t, 503, w.send("eve", http.MethodGet, vpcs, "").code)
	}
}

func TestTheBodysNamespaceIsThePathsTenant(t *testing.T) {
	w := newWorld(t)
	for _, namespace := range []string{"globex", w.namespaces["globex"], w.namespaces["acme"], "kube-system"} {
		body := strings.Replace(demoVpc, "acme", namespace, 1)
		refused := w.send("alice", http.MethodPost, vpcs, body)
		require.Equal(t, 400, refused.code, refused.body)
		require.Contains(t, refused.body, "metadata.namespace")
		patch := `{"apiVersion":"vpc.mnicloud.jp/v1alpha1","kind":"Vpc","metadata":{"name":"demo","namespace":"` + namespace + `"}}`
		require.Equal(t, 400, w.send("alice", http.MethodPatch, vpcs+"/demo?fieldManager=x", patch, "Content-Type", "application/apply-patch+yaml").code)
	}
	require.Equal(t, 201, w.send("alice", http.MethodPost, vpcs+"?dryRun=All", demoVpc).code)
	require.Equal(t, 404, w.send("alice", http.MethodGet, vpcs+"/demo", "").code, "dry-run makes nothing")
	require.Equal(t, 201, w.send("alice", http.MethodPost, vpcs, demoVpc).code)
	for _, c := range []struct {
		patch string
		code  int
	}{
		{`[{"op":"replace","path":"/metadata/namespace","value":"globex"}]`, 400},
		{`[{"op":"test","path":"/metadata/namespace","value":"acme"}]`, 200},
		{`[{"op":"replace","path":"","value":{}}]`, 400},
		{`[{"op":"copy","from":"/metadata","path":"/spec/x"}]`, 400},
		{`[{"op":"copy","from":"/metadata/namespace","path":"/metadata/labels"}]`, 422},
		{`[{"op":"add","path":"/metadata/annotations","value":{}}]`, 200},
		{`[{"op":"add","path":"/metadata/annotations","value":{"x":"y"}},{"op":"copy","from":"/metadata/namespace","path":"/metadata/annotations/a"}]`, 200},
	} {
		patch, code := c.patch, c.code
		answer := w.send("alice", http.MethodPatch, vpcs+"/demo", patch, "Content-Type", "application/json-patch+json")
		require.Equal(t, code, answer.code, "%s: %s", patch, answer.body)
		w.noNamespace(answer.body)
	}
}

func TestParametersThatNobodyKnowsAreRefused(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, 200, w.send("alice", http.MethodGet, vpcs+"?limit=1&labelSelector=a%3Db", "").code)
	for _, query := range []string{"namespace=globex", "watch=false&insecureSkipTLSVerifyBackend=true", "resourceVersion=abc", "watch=1&resourceVersion=-1", "limit=1;limit=2", "limit=1&limit=2", "a=%zz"} {
		require.Equal(t, 400, w.send("alice", http.MethodGet, vpcs+"?"+query, "").code, query)
	}
	other := w.send("alice", http.MethodGet, vpcs+"?fieldSelector=metadata.namespace%3Dglobex", "")
	require.Equal(t, 200, other.code)
	require.Empty(t, other.json(t)["items"])
}

func TestBombsAndHugeBodiesAreRefusedBeforeTheyGrow(t *testing.T) {
	w := newWorld(t)
	laughs := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		laughs += fmt.Sprintf("%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	long := "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a, ", 10000) + "]\n"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for name, body := range map[string]string{
		"aliases of aliases": laughs, "many aliases of one long text": long, "an alias within itself": "a: &a [*a]", "deep": strings.Repeat("[", 100000),
		"deep JSON": strings.Repeat(`{"a":`, 100000), "two documents": demoVpc + "---\n" + demoVpc, "a key twice": demoVpc + "spec: {}\n", "no object": "[]", "nothing": "",
	} {
		refused := w.send("alice", http.MethodPost, vpcs, body)
		require.Equal(t, 400, refused.code, "%s: %s", name, refused.body)
	}
	require.Equal(t, 413, w.send("alice", http.MethodPost, vpcs, strings.Repeat("x", 4<<20)).code)
	require.Equal(t, 415, w.send("alice", http.MethodPost, vpcs, demoVpc, "Content-Encoding", "gzip").code)
	require.Equal(t, 415, w.send("alice", http.MethodPost, vpcs, demoVpc, "Content-Type", "application/vnd.kubernetes.protobuf").code)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<30))
}

func TestARateIsKeptByUser(t *testing.T) {
	w := newWorld(t)
	w.serve(gateway.Config{Limits: gateway.Limits{PerSecond: 0.001, Burst: 3, AtOnce: 2}, Upstream: w.ownConfig(), Authenticator: w.tokens})
	for i := range 3 {
		require.Equal(t, 200, w.send("alice", http.MethodGet, vpcs, "").code, i)
	}
	refused := w.send("alice", http.MethodGet, vpcs, "")
	require.Equal(t, 429, refused.code)
	require.Equal(t, "1", refused.header.Get("Retry-After"))
	require.Equal(t, 200, w.send("carol", http.MethodGet, vpcs, "").code, "another user's is another rate")
}

func TestAWatchEndsWhenItsCallerIsNoLongerAMember(t *testing.T) {
	w := newWorld(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+vpcs+"?watch=1", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer alice")
	response, err := w.client.Do(r) //nolint:bodyclose // closed below
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, 200, response.StatusCode)
	w.user("alice", map[string]string{})
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, response.Body)
		ended <- err
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the watch goes on")
	}
}

func TestErrorsAreProblemsToPlainClientsAndStatusesToKubernetes(t *testing.T) {
	w := newWorld(t)
	bad := strings.Replace(demoVpc, "10.42.0.0/16", "nonsense", 1)
	plain := w.send("alice", http.MethodPost, vpcs, bad, "Accept", "*/*")
	require.Equal(t, 422, plain.code)
	require.Equal(t, "application/problem+json", plain.header.Get("Content-Type"))
	problem := plain.json(t)
	require.EqualValues(t, 422, problem["status"])
	require.Equal(t, "spec.cidr", problem["errors"].([]any)[0].(map[string]any)["field"])
	status := w.send("alice", http.MethodPost, vpcs, bad)
	require.Equal(t, "Status", status.json(t)["kind"])
	require.Equal(t, "nosniff", status.header.Get("X-Content-Type-Options"))
	require.NotEmpty(t, status.header.Get("Strict-Transport-Security"))
	for _, path := range []string{"/apis/none.mnicloud.jp/v1/x", "/nothing"} {
		require.Equal(t, "Status", w.send("alice", http.MethodGet, path, "").json(t)["kind"])
		require.Equal(t, "application/problem+json", w.send("alice", http.MethodGet, path, "", "Accept", "text/html,*/*").header.Get("Content-Type"))
	}
}
