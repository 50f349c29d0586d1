package gateway_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// requestsVariable is the environment variable that says how many requests the fuzzer makes.
const requestsVariable = "MNI_GATEWAY_FUZZ"

func TestNoRequestCrossesATenantsBorder(t *testing.T) {
	requests := 5000
	if s := os.Getenv(requestsVariable); s != "" {
		var err error
		requests, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	f := newFuzzer(newWorld(t))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	require.NoError(t, f.control(rand.New(rand.NewPCG(seed, 1)))) //nolint:gosec // to be repeated
	require.Empty(t, f.uncontrolled())
	require.NoError(t, f.run(seed, requests))
	t.Logf("%d requests, %d of them allowed; %d kinds, verbs and subresources with a control", f.sent, f.allowed, len(f.controls))
}

// attackable is a kind under one group and version, as the gateway's discovery tells an administrator of it.
type attackable struct {
	gv           schema.GroupVersion
	kind, plural string
	namespaced   bool
	short        bool
	verbs        []string
	subresources map[string][]string
}

func (a *attackable) resource() schema.GroupVersionResource { return a.gv.WithResource(a.plural) }

// fuzzer makes requests of every kind, verb and subresource, by everybody, everywhere, with tricks, and looks whether any of them
// shows or changes what it must not.
type fuzzer struct {
	*world
	kinds  []*attackable
	direct dynamic.Interface
	// before is the state that no request may change: those that may change something are dry runs.
	before map[string]string
	mu     sync.Mutex
	// controls are the kinds, verbs and subresources for which a request that is allowed has succeeded.
	controls      map[string]bool
	sent, allowed int
	// every how many requests the state is looked at.
	every int
	// stirred counts the changes that were made for watches to see, and fresh is the version after the last of them.
	stirred atomic.Int64
	fresh   atomic.Pointer[string]
}

func newFuzzer(w *world) *fuzzer {
	w.t.Helper()
	f := &fuzzer{world: w, controls: map[string]bool{}, every: 1000}
	var err error
	f.direct, err = dynamic.NewForConfig(w.direct)
	require.NoError(w.t, err)
	client, err := discovery.NewDiscoveryClientForConfig(w.config("root"))
	require.NoError(w.t, err)
	_, lists, err := client.ServerGroupsAndResources()
	require.NoError(w.t, err)
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(w.t, err)
		byName := map[string]*attackable{}
		for _, r := range list.APIResources {
			if plural, sub, ok := strings.Cut(r.Name, "/"); ok {
				byName[plural].subresources[sub] = r.Verbs
				continue
			}
			a := &attackable{
				gv: gv, kind: r.Kind, plural: r.Name, namespaced: r.Namespaced, verbs: slices.Clone(r.Verbs), subresources: map[string][]string{},
				short: gv.Group != "" && !strings.Contains(gv.Group, "."),
			}
			if slices.Contains(a.verbs, "patch") {
				a.verbs = append(a.verbs, documents)
			}
			byName[r.Name] = a
			f.kinds = append(f.kinds, a)
		}
	}
	require.NotEmpty(w.t, f.kinds)
	w.furnish(f.kinds)
	f.fresh.Store(new(string))
	for _, k := range f.kinds {
		f.stir(f.ctx, k)
	}
	f.before = f.state()
	return f
}

// state is the version of every object of the tenants, and of every cluster-scoped one of the cloud.
func (f *fuzzer) state() map[string]string {
	f.t.Helper()
	state := map[string]string{}
	for _, k := range f.kinds {
		if k.short {
			continue
		}
		list, err := f.direct.Resource(k.resource()).List(f.ctx, metav1.ListOptions{})
		require.NoError(f.t, err)
		for _, o := range list.Items {
			if o.GetName() == stirred {
				continue
			}
			state[k.gv.Group+"/"+k.plural+"/"+o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
		}
	}
	return state
}

// stirred is the name of the objects that change while they are watched, one of each kind in each tenant. The state is without them.
const stirred = "stirred"

// stir changes an object of the kind in every tenant, so that those who watch have something to see. It makes them if they are not there.
func (f *fuzzer) stir(ctx context.Context, k *attackable) {
	if !k.namespaced || k.gv.Group == "" {
		return
	}
	resource := k.resource()
	if k.short {
		resource.Group, resource.Version = resource.Group+".mnicloud.jp", "v1alpha1"
	}
	for tenant, namespace := range f.namespaces {
		object := &unstructured.Unstructured{Object: sample(k, namespace)}
		object.SetGroupVersionKind(resource.GroupVersion().WithKind(k.kind))
		object.SetName(stirred)
		object.SetLabels(map[string]string{"of": markerOf(tenant), "stirred": fmt.Sprint(f.stirred.Add(1))})
		now, err := f.direct.Resource(resource).Namespace(namespace).Apply(ctx, stirred, object, metav1.ApplyOptions{FieldManager: "stir", Force: true})
		if err != nil {
			if ctx.Err() == nil {
				f.t.Errorf("stir %s: %s", k.plural, err)
			}
			return
		}
		version := now.GetResourceVersion()
		f.fresh.Store(&version)
	}
}

// changes says what of a state is another than before.
func changes(before, now map[string]string) []string {
	var out []string
	for key, version := range before {
		if now[key] != version {
			out = append(out, fmt.Sprintf("%s was %s and is %q", key, version, now[key]))
		}
	}
	for key := range now {
		if before[key] == "" {
			out = append(out, key+" is new")
		}
	}
	slices.Sort(out)
	return out
}

// workers is how many requests are made at once.
const workers = 8

// run makes that many requests and returns the first thing that is wrong.
func (f *fuzzer) run(seed uint64, requests int) error {
	drawn := make([]*rand.Rand, workers)
	for i := range drawn {
		drawn[i] = rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // to be repeated
	}
	for done := 0; done < requests; done += f.every {
		var group errgroup.Group
		for i, rng := range drawn {
			group.Go(func() error {
				for range share(min(f.every, requests-done), i) {
					if err := f.attempt(draw(rng, f)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		if now := f.state(); !maps.Equal(now, f.before) {
			return fmt.Errorf("the state changed by one of the last %d requests: %s", f.every, strings.Join(changes(f.before, now), ", "))
		}
	}
	return nil
}

// share is how many of the requests a worker makes.
func share(requests, worker int) int { return (requests + workers - 1 - worker) / workers }

// attempt sends one request and judges the answer.
func (f *fuzzer) attempt(a *attack) error {
	f.mu.Lock()
	f.sent++
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	request, recorder := a.request(ctx), httptest.NewRecorder()
	if a.verb == "watch" {
		g := &glance{ResponseRecorder: recorder, end: cancel, begun: func() { f.stir(f.ctx, a.kind) }}
		f.handler.ServeHTTP(g, request)
		g.stirring.Wait()
	} else {
		f.handler.ServeHTTP(recorder, request)
	}
	body, code := recorder.Body.String(), recorder.Code
	if a.verb == documents {
		code = codeOfLast(body, code)
	}
	told := func(format string, args ...any) error {
		return fmt.Errorf("%s\n%s %s\n%s\n%d %s", fmt.Sprintf(format, args...), request.Method, request.URL, a.body, recorder.Code, body)
	}
	if shown := f.shows(a, body, recorder.Header()); shown != "" {
		return told("%s sees %s", a.user, shown)
	}
	may := f.may(a)
	switch {
	case may == no && code < 400:
		return told("%s may not %s", a.user, a.what())
	case may == no && code >= 500:
		return told("%s is refused by a failure", a.user)
	case may == yes && code >= 400:
		return told("%s may %s", a.user, a.what())
	case may == yes:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.allowed++
		f.controls[a.what()] = true
	}
	return nil
}

// codeOfLast is the code of the last of many documents that were applied.
func codeOfLast(body string, code int) int {
	var answer struct {
		Documents []struct{ Code int }
	}
	if json.Unmarshal([]byte(body), &answer) != nil || len(answer.Documents) == 0 {
		return code
	}
	return answer.Documents[len(answer.Documents)-1].Code
}

// glance records a watch, which has no end of its own: when the answer has begun something happens that it could show, and a moment later it ends.
type glance struct {
	*httptest.ResponseRecorder
	begun    func()
	end      func()
	once     sync.Once
	stirring sync.WaitGroup
}

// WriteHeader implements http.ResponseWriter.
func (g *glance) WriteHeader(code int) {
	g.ResponseRecorder.WriteHeader(code)
	g.once.Do(func() {
		if code >= http.StatusBadRequest {
			return
		}
		g.stirring.Go(func() {
			g.begun()
			time.AfterFunc(50*time.Millisecond, g.end)
		})
	})
}

// Write implements http.ResponseWriter.
func (g *glance) Write(b []byte) (int, error) {
	g.WriteHeader(http.StatusOK) // unless there is one
	return g.ResponseRecorder.Write(b)
}

// Flush implements http.Flusher: a watch begins with it, before its first event.
func (g *glance) Flush() {
	g.WriteHeader(http.StatusOK) // unless there is one
	g.ResponseRecorder.Flush()
}

// shows says what an answer shows that this user must not see.
func (f *fuzzer) shows(a *attack, body string, header http.Header) string {
	user := a.user
	text := body + fmt.Sprint(header)
	var list metav1.List
	if json.Unmarshal([]byte(body), &list) == nil && list.Continue != "" {
		raw, err := base64.RawURLEncoding.DecodeString(list.Continue)
		if err != nil {
			return "a token that cannot be read"
		}
		text += string(raw)
	}
	if strings.Contains(text, hash) {
		return "the hash of a password"
	}
	for tenant, namespace := range f.namespaces {
		repeated := a.verb == documents && strings.Contains(a.body, namespace) // the answer names what each document is about, as it says itself
		if namespace != a.known && !repeated && strings.Contains(text, namespace) {
			return "the namespace of " + tenant
		}
		if roleOf(user, tenant) == "" && strings.Contains(text, markerOf(tenant)) {
			return "an object of " + tenant
		}
	}
	for _, other := range []string{"alice", "bob", "carol", "root"} {
		if other != user && user != "root" && strings.Contains(text, markerOf("user-"+other)) {
			return "User " + other
		}
	}
	return ""
}

// roleOf is a user's role in a tenant.
func roleOf(user, tenant string) string {
	return map[string]string{
		"alice/acme": "member", "ci/acme": "member", "bob/globex": "member", "carol/acme": "viewer", "carol/globex": "member", "root/acme": "admin", "root/globex": "admin",
	}[user+"/"+tenant]
}

// verdict of what a request may do.
type verdict int

const (
	no verdict = iota
	yes
	// harmless: it may be refused or not, but shows and changes nothing.
	harmless
)

var reading = []string{"get", "list", "watch"}

// may says whether the rules of the cloud allow the request.
func (f *fuzzer) may(a *attack) verdict {
	role := roleOf(a.user, a.tenant)
	switch {
	case a.user == "":
		return no
	case a.trick != "":
		return harmless
	case !a.kind.namespaced:
		return a.mayInCluster()
	case a.across:
		if a.verb == "watch" && a.user != "root" {
			return no
		}
		return yes
	case role == "":
		return no
	case slices.Contains(attachments, a.sub):
		if role == "viewer" {
			return no
		}
		return harmless // a recorder is no connection that could change its protocol
	case role == "admin":
		return yes
	case (a.sub == "status" || slices.Contains(adminsWrite, a.kind.plural)) && !slices.Contains(reading, a.verb):
		return no
	case role == "viewer" && !slices.Contains(reading, a.verb):
		return no
	}
	return yes
}
