package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/platform/gateway"
)

// upstreamWatches counts the watches that are open at the API server, by whose they are.
type upstreamWatches struct {
	mu   sync.Mutex
	open map[string]int
}

func (u *upstreamWatches) of(user string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.open[user]
}

// around counts what goes through it.
func (u *upstreamWatches) around(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || r.URL.Query().Get("watch") == "" || response.StatusCode != http.StatusOK {
			return response, err
		}
		user := r.Header.Get("Impersonate-User")
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.open == nil {
			u.open = map[string]int{}
		}
		u.open[user]++
		response.Body = &counted{ReadCloser: response.Body, closed: sync.OnceFunc(func() {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.open[user]--
		})}
		return response, nil
	})
}

type counted struct {
	io.ReadCloser
	closed func()
}

// Close implements io.Closer.
func (c *counted) Close() error {
	c.closed()
	return c.ReadCloser.Close()
}

// counting makes the world's gateway one whose upstream watches are counted.
func (w *world) counting() *upstreamWatches {
	w.t.Helper()
	u := &upstreamWatches{}
	config := gateway.Config{Limits: plenty, Upstream: w.ownConfig(), Authenticator: w.tokens}
	config.Upstream.Wrap(u.around)
	w.serve(config)
	return u
}

// watched is an event that a client got.
type watched struct {
	Type   string
	Object struct {
		Kind     string
		Code     int
		Metadata metav1.ObjectMeta
		Items    []any
	}
	text string
}

func (e *watched) String() string {
	return fmt.Sprintf("%s %s/%s", e.Type, e.Object.Metadata.Namespace, e.Object.Metadata.Name)
}

// viewer is a client's watch.
type viewer struct {
	w      *world
	events chan *watched
	cancel context.CancelFunc
	body   io.Closer
}

// watch begins a watch; query has what follows watch=1.
func (w *world) watch(user, path, query string) *viewer {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path+"?watch=1"+query, nil)
	require.NoError(w.t, err)
	r.Header.Set("Authorization", "Bearer "+user)
	r.Header.Set("Accept", "application/json")
	response, err := w.client.Do(r) //nolint:bodyclose // closed when the test ends
	require.NoError(w.t, err)
	v := &viewer{w: w, events: make(chan *watched, 10000), cancel: cancel, body: response.Body}
	w.t.Cleanup(v.close)
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		w.t.Fatalf("watch of %s by %s: %d %s", path, user, response.StatusCode, text)
	}
	go v.read(response.Body)
	return v
}

func (v *viewer) read(body io.Reader) {
	defer close(v.events)
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		e := &watched{text: lines.Text()}
		if err := json.Unmarshal(lines.Bytes(), e); err != nil {
			e.Type = "UNREADABLE"
		}
		v.events <- e
	}
}

func (v *viewer) close() {
	v.cancel()
	_ = v.body.Close()
}

// next is the next event that is no bookmark; nil when the watch has ended.
func (v *viewer) next() *watched {
	v.w.t.Helper()
	for {
		select {
		case e := <-v.events:
			if e == nil || e.Type != "BOOKMARK" {
				return e
			}
		case <-time.After(patience):
			v.w.t.Fatal("no event came")
		}
	}
}

// ends waits until the watch ends, and returns what came before that.
func (v *viewer) ends() (before []*watched) {
	v.w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case e := <-v.events:
			if e == nil {
				return before
			}
			before = append(before, e)
		case <-deadline:
			v.w.t.Fatal("the watch goes on")
		}
	}
}

// version is the version of a user's list.
func (w *world) version(user, path string) string {
	w.t.Helper()
	list := w.send(user, http.MethodGet, path, "")
	require.Equal(w.t, 200, list.code, list.body)
	version, _ := list.json(w.t)["metadata"].(map[string]any)["resourceVersion"].(string)
	require.NotEmpty(w.t, version)
	return version
}

// warm has the shared watch of Vpcs run: a list's version is then one that it goes on from.
func (w *world) warm(u *upstreamWatches) {
	w.t.Helper()
	v := w.watch("alice", vpcs, "&resourceVersion="+w.version("alice", vpcs))
	w.eventually("the shared watch runs", func() bool { return u.of("mni:gateway") == 1 })
	v.close()
	w.eventually("a watch is not one of the caller's own", func() bool {
		v := w.watch("alice", vpcs, "&resourceVersion="+w.version("alice", vpcs))
		defer v.close()
		<-time.After(20 * time.Millisecond) // it joins after its answer has begun; another try follows
		return u.of("mni:user:alice") == 0
	})
}

func vpcNamed(name string) string { return strings.Replace(demoVpc, "name: demo", "name: "+name, 1) }

func globexVpc(name string) string { return strings.Replace(vpcNamed(name), "acme", "globex", 1) }

var globexVpcs = strings.Replace(vpcs, "acme", "globex", 1)

func TestManyWatchersShareOneWatchAndSeeTheirTenantsOnly(t *testing.T) {
	w := newWorld(t)
	u := w.counting()
	w.warm(u)
	var acme, globex []*viewer
	from := "&resourceVersion=" + w.version("alice", vpcs)
	for range 50 {
		acme = append(acme, w.watch("alice", vpcs, from), w.watch("carol", vpcs, from))
		globex = append(globex, w.watch("bob", globexVpcs, from))
	}
	all := w.watch("root", "/apis/vpc.mnicloud.jp/v1alpha1/vpcs", from)
	short := w.watch("alice", "/apis/vpc/v1alpha/namespaces/acme/vpcs", from)
	require.Equal(t, 1, u.of("mni:gateway"))
	w.eventually("nobody has a watch of its own", func() bool {
		return u.of("mni:user:alice")+u.of("mni:user:bob")+u.of("mni:user:carol")+u.of("mni:user:root") == 0
	})
	for i := range 10 {
		require.Equal(t, 201, w.send("alice", http.MethodPost, vpcs, vpcNamed(fmt.Sprint("a-", i))).code)
		require.Equal(t, 201, w.send("bob", http.MethodPost, globexVpcs, globexVpc(fmt.Sprint("g-", i))).code)
	}
	expect := func(v *viewer, names ...string) {
		for _, name := range names {
			e := v.next()
			require.NotNil(t, e)
			require.Equal(t, "ADDED "+name, e.String())
			w.noNamespace(e.text)
		}
	}
	for i := range 10 {
		for _, v := range acme {
			expect(v, fmt.Sprint("acme/a-", i))
		}
		for _, v := range globex {
			expect(v, fmt.Sprint("globex/g-", i))
		}
		expect(short, fmt.Sprint("acme/a-", i))
		expect(all, fmt.Sprint("acme/a-", i), fmt.Sprint("globex/g-", i))
	}
	require.Equal(t, 200, w.send("alice", http.MethodDelete, vpcs+"/a-0", "").code)
	for _, v := range acme {
		require.Equal(t, "DELETED acme/a-0", v.next().String())
	}
	require.Equal(t, "vpc/v1alpha", func() string {
		var e struct{ Object metav1.TypeMeta }
		require.NoError(t, json.Unmarshal([]byte(short.next().text), &e))
		return e.Object.APIVersion
	}())
	require.Equal(t, 1, u.of("mni:gateway"))
	require.Zero(t, u.of("mni:user:alice"))
}

func TestAWatchGoesOnFromAnyVersionThatIsNotTooOld(t *testing.T) {
	w := newWorld(t)
	w.warm(w.counting())
	versions := []string{w.version("alice", vpcs)}
	for i := range 5 {
		require.Equal(t, 201, w.send("alice", http.MethodPost, vpcs, vpcNamed(fmt.Sprint("a-", i))).code)
		versions = append(versions, w.version("alice", vpcs))
	}
	for from, version := range versions {
		v := w.watch("alice", vpcs, "&resourceVersion="+version)
		for i := from; i < 5; i++ {
			require.Equal(t, fmt.Sprint("ADDED acme/a-", i), v.next().String())
		}
		v.close()
	}
	tooOld := w.watch("alice", vpcs, "&resourceVersion=1").ends()
	require.Len(t, tooOld, 1)
	require.Equal(t, "ERROR", tooOld[0].Type)
	require.Equal(t, 410, tooOld[0].Object.Code)
	ended := w.watch("alice", vpcs, "&timeoutSeconds=1&resourceVersion="+versions[5]).ends()
	require.Empty(t, ended, "it lasts as long as it was asked for")
}

func TestWhatThereIsAtFirstComesBeforeWhatChanges(t *testing.T) {
	w := newWorld(t)
	u := w.counting()
	w.warm(u)
	require.Equal(t, 201, w.send("alice", http.MethodPost, vpcs, vpcNamed("before")).code)
	streaming := w.watch("alice", vpcs, "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	plain := w.watch("alice", vpcs, "")
	require.Equal(t, "ADDED acme/before", streaming.next().String())
	require.Equal(t, "ADDED acme/before", plain.next().String())
	w.eventually("once they have all of it they share", func() bool { return u.of("mni:user:alice") == 0 })
	require.Equal(t, 201, w.send("alice", http.MethodPost, vpcs, vpcNamed("after")).code)
	require.Equal(t, "ADDED acme/after", streaming.next().String())
	require.Equal(t, "ADDED acme/after", plain.next().String())
}

func TestASharedWatchEndsSoonAfterTheCallerMayNotWatch(t *testing.T) {
	w := newWorld(t)
	w.warm(w.counting())
	from := "&resourceVersion=" + w.version("alice", vpcs)
	alice, carol := w.watch("alice", vpcs, from), w.watch("carol", vpcs, from)
	other := w.watch("carol", globexVpcs, from)
	began := time.Now()
	w.user("alice", map[string]string{"globex": "member"})
	require.Empty(t, alice.ends(), "alice is no member any more")
	t.Logf("ended after %s", time.Since(began).Round(time.Millisecond))
	require.Equal(t, 403, w.send("alice", http.MethodGet, vpcs+"?watch=1"+from, "").code)

	// The rule itself is taken away, with nobody's groups changed: RBAC says who may.
	bindings := w.kube.RbacV1().RoleBindings(w.namespaces["acme"])
	require.NoError(t, bindings.Delete(t.Context(), "viewer", metav1.DeleteOptions{}))
	began = time.Now()
	require.Empty(t, carol.ends())
	t.Logf("ended after %s", time.Since(began).Round(time.Millisecond))
	require.Equal(t, 201, w.send("bob", http.MethodPost, globexVpcs, globexVpc("more")).code)
	require.Equal(t, "ADDED globex/more", other.next().String(), "where it may, it goes on")
}

func TestWithoutRightsOfItsOwnTheGatewaySharesNothingAndAllWatchesWork(t *testing.T) {
	w := newWorld(t)
	const binding = "gateway-test-test-viewer"
	require.NoError(t, w.kube.RbacV1().ClusterRoleBindings().Delete(t.Context(), binding, metav1.DeleteOptions{}))
	t.Cleanup(func() { w.ctx = context.Background(); w.sharer() })
	u := w.counting()
	v := w.watch("alice", vpcs, "&resourceVersion="+w.version("alice", vpcs))
	require.Equal(t, 201, w.send("alice", http.MethodPost, vpcs, demoVpc).code)
	require.Equal(t, "ADDED acme/demo", v.next().String())
	require.Equal(t, 1, u.of("mni:user:alice"))
	require.Zero(t, u.of("mni:gateway"))
}

func TestASharedWatchThatIsLostBecomesOneOfTheCallersOwn(t *testing.T) {
	w := newWorld(t)
	u := &upstreamWatches{}
	var cut sync.Map
	config := gateway.Config{Limits: plenty, Upstream: w.ownConfig(), Authenticator: w.tokens}
	broken := make(chan struct{})
	config.Upstream.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Impersonate-User") != "mni:gateway" {
				return next.RoundTrip(r)
			}
			select {
			case <-broken:
				return nil, fmt.Errorf("cut")
			default:
			}
			ctx, cancel := context.WithCancel(r.Context())
			cut.Store(r, cancel)
			return next.RoundTrip(r.WithContext(ctx))
		})
	})
	config.Upstream.Wrap(u.around)
	w.serve(config)
	w.warm(u)
	v := w.watch("alice", vpcs, "&resourceVersion="+w.version("alice", vpcs))
	require.Equal(t, 201, w.send("alice", http.MethodPost, vpcs, vpcNamed("one")).code)
	require.Equal(t, "ADDED acme/one", v.next().String())
	close(broken)
	cut.Range(func(_, cancel any) bool {
		cancel.(context.CancelFunc)()
		return true
	})
	require.Equal(t, 201, w.send("alice", http.MethodPost, vpcs, vpcNamed("two")).code)
	require.Equal(t, "ADDED acme/two", v.next().String(), "nothing is missed")
	require.Equal(t, 1, u.of("mni:user:alice"))
}

// sharer gives the gateway's shared watches their rights.
func (w *world) sharer() {
	w.t.Helper()
	w.bindAll("test-viewer", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mni:gateway"})
}
