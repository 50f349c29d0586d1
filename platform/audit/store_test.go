package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mnicloud/mnicloud/test/apiserver"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	os.Exit(apiserver.Main(m))
}

// ledger is an API server with a namespace for chunks, and a tenant.
type ledger struct {
	client.WithWatch
	t         *testing.T
	namespace string
	acme      Tenant
	mu        sync.Mutex
	clock     time.Time
}

// now is a millisecond later each time.
func (l *ledger) now() time.Time {
	l.pass(time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock
}

// pass lets time pass.
func (l *ledger) pass(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock = l.clock.Add(d)
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	config := apiserver.Shared(t)
	config.QPS = -1
	c, err := client.NewWithWatch(config, client.Options{Scheme: clientgoscheme.Scheme})
	require.NoError(t, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "audit-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	return &ledger{WithWatch: c, t: t, namespace: ns.Name, acme: Tenant{uuid.NewString(), "acme"}, clock: time.Now().Truncate(time.Millisecond)}
}

// trail is one process's.
func (l *ledger) trail(c client.Client, o Options) *Trail {
	o.Namespace, o.Now = l.namespace, l.now
	return New(c, o)
}

// does records that somebody did something.
func (l *ledger) does(trail *Trail, tenant Tenant, user, name string) {
	l.t.Helper()
	p, err := trail.Reserve(tenant.UID)
	require.NoError(l.t, err)
	p.Record(tenant, Entry{User: user, Verb: "create", Group: "vpc.mnicloud.jp", Resource: "vpcs", Name: name, Code: 201, Source: "192.0.2.7", Session: "0123456789abcdef"})
}

// names are the entries' names, of all pages of so many.
func (l *ledger) names(trail *Trail, q Query) []string {
	l.t.Helper()
	var names []string
	if q.Tenant.UID == "" && q.Tenant.Name == "" {
		q.Tenant = l.acme
	}
	for {
		page, err := trail.Read(l.t.Context(), q)
		require.NoError(l.t, err)
		if q.Limit > 0 {
			require.LessOrEqual(l.t, len(page.Entries), q.Limit)
		}
		for _, e := range page.Entries {
			names = append(names, e.Name)
		}
		if q.Continue = page.Continue; q.Continue == "" {
			return names
		}
	}
}

// chunks are the tenant's, by name.
func (l *ledger) chunks(tenant Tenant) []corev1.ConfigMap {
	l.t.Helper()
	var list corev1.ConfigMapList
	require.NoError(l.t, l.List(l.t.Context(), &list, client.InNamespace(l.namespace), client.MatchingLabels{LabelTenantUID: tenant.UID}))
	return list.Items
}

// store stores what is due now.
func (l *ledger) store(trail *Trail) {
	l.t.Helper()
	_, err := trail.store(l.t.Context(), false)
	require.NoError(l.t, err)
}

func TestEntriesOfManyReplicasAreReadNewestFirstInPages(t *testing.T) {
	l := newLedger(t)
	replicas := []*Trail{l.trail(l, Options{}), l.trail(l, Options{}), l.trail(l, Options{})}
	globex := Tenant{uuid.NewString(), "globex"}
	var want []string
	for i := range 60 {
		replica := replicas[i%3]
		name := fmt.Sprint("v-", i)
		l.does(replica, l.acme, map[bool]string{true: "ada", false: "bob"}[i%2 == 0], name)
		l.does(replica, globex, "carol", "secret")
		want = append([]string{name}, want...)
		if i%7 == 0 {
			l.store(replica)
		}
	}
	for _, replica := range replicas {
		require.NoError(t, replica.Close(t.Context()))
		require.Zero(t, replica.waiting())
	}
	reader := l.trail(l, Options{})
	for _, limit := range []int{0, 1, 7, 60, MaxLimit} {
		require.Equal(t, want, l.names(reader, Query{Limit: limit}), "%d at a time", limit)
	}
	require.Len(t, l.names(reader, Query{User: "ada", Limit: 4}), 30)
	require.Empty(t, l.names(reader, Query{User: "carol"}))
	require.Len(t, l.names(reader, Query{Tenant: globex, User: "carol"}), 60)
	require.Equal(t, []string{"v-7"}, l.names(reader, Query{Name: "v-7", Verb: "create", Resources: []string{"vpcs"}}))
	require.Empty(t, l.names(reader, Query{Verb: "delete"}))
	require.Empty(t, l.names(reader, Query{Resources: []string{"subnets"}}))
	page, err := reader.Read(t.Context(), Query{Tenant: l.acme, Limit: 20})
	require.NoError(t, err)
	at := page.Entries[19].Time
	require.Equal(t, want[:20], l.names(reader, Query{Since: at}))
	require.Equal(t, want[19:], l.names(reader, Query{Until: at, Limit: 3}))
	require.Equal(t, want[19:20], l.names(reader, Query{Since: at, Until: at}))
	require.Len(t, l.chunks(l.acme), 3)
	require.Equal(t, "acme", l.chunks(l.acme)[0].Labels[LabelTenant])
}

func TestAFullChunkIsCompressedAndAnotherBegins(t *testing.T) {
	l := newLedger(t)
	trail := l.trail(l, Options{})
	var want []string
	for i := range 900 {
		name := fmt.Sprint("v-", i)
		l.does(trail, l.acme, "ada", name)
		want = append([]string{name}, want...)
		if i%50 == 0 {
			l.store(trail)
		}
	}
	require.NoError(t, trail.Close(t.Context()))
	chunks := l.chunks(l.acme)
	require.Greater(t, len(chunks), 3)
	for _, c := range chunks[:len(chunks)-1] {
		require.Empty(t, c.Data)
		require.Less(t, len(c.BinaryData[sealed]), maxChunk/4)
		require.Equal(t, fmt.Sprint(len(c.BinaryData[sealed])), c.Annotations[annotationBytes])
	}
	require.Equal(t, want, l.names(trail, Query{Limit: 111}))
}

func TestAWriteWhoseAnswerIsLostNeitherDoublesNorLosesEntries(t *testing.T) {
	l := newLedger(t)
	var writes atomic.Int64
	// Every second write reaches the API server and fails all the same; every third fails before it.
	broken := interceptor.NewClient(l.WithWatch, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if writes.Add(1)%2 == 1 {
				return errors.Join(c.Create(ctx, o, opts...), errors.New("the answer was lost"))
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			switch n := writes.Add(1); {
			case n%3 == 0:
				return errors.New("nobody answers")
			case n%2 == 0:
				return errors.Join(c.Patch(ctx, o, patch, opts...), errors.New("the answer was lost"))
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	})
	trail := l.trail(broken, Options{})
	var want []string
	for i := range 400 {
		name := fmt.Sprint("v-", i)
		l.does(trail, l.acme, "ada", name)
		want = append([]string{name}, want...)
		if i%10 == 0 {
			_, _ = trail.store(t.Context(), false)
		}
	}
	for trail.waiting() > 0 {
		_, _ = trail.store(t.Context(), true)
	}
	require.Greater(t, writes.Load(), int64(40))
	require.Equal(t, want, l.names(l.trail(l, Options{}), Query{}))
}

func TestAfterAKillAnotherProcessGoesOn(t *testing.T) {
	l := newLedger(t)
	killed := l.trail(l, Options{})
	l.does(killed, l.acme, "ada", "stored")
	l.store(killed)
	l.does(killed, l.acme, "ada", "lost with the process")
	next := l.trail(l, Options{})
	l.does(next, l.acme, "ada", "after")
	require.NoError(t, next.Close(t.Context()))
	require.Equal(t, []string{"after", "stored"}, l.names(next, Query{}))
	require.Len(t, l.chunks(l.acme), 2)
}

func TestAChunkThatWasRemovedIsFollowedByAnother(t *testing.T) {
	l := newLedger(t)
	trail := l.trail(l, Options{})
	l.does(trail, l.acme, "ada", "before")
	l.store(trail)
	require.NoError(t, l.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(l.namespace)))
	l.does(trail, l.acme, "ada", "after")
	l.store(trail)
	require.Equal(t, []string{"after"}, l.names(trail, Query{}))
}

func TestWhatCannotBeStoredWaitsAndFillsTheRoom(t *testing.T) {
	l := newLedger(t)
	var closed atomic.Bool
	closed.Store(true)
	broken := interceptor.NewClient(l.WithWatch, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if closed.Load() {
				return errors.New("no")
			}
			return c.Create(ctx, o, opts...)
		},
	})
	trail := l.trail(broken, Options{Capacity: 40})
	var want []string
	for i := 0; ; i++ {
		p, err := trail.Reserve(l.acme.UID)
		if err != nil {
			require.ErrorIs(t, err, ErrFull)
			break
		}
		name := fmt.Sprint("v-", i)
		p.Record(l.acme, Entry{User: "ada", Verb: "create", Resource: "vpcs", Name: name, Code: 201})
		want = append([]string{name}, want...)
		_, err = trail.store(t.Context(), false)
		require.Error(t, err)
	}
	require.Len(t, want, 10)
	closed.Store(false)
	for trail.waiting() > 0 {
		l.store(trail)
	}
	require.Equal(t, want, l.names(trail, Query{}))
	_, err := trail.Reserve(l.acme.UID)
	require.NoError(t, err)
}

func TestAFloodOfOneTenantPushesOutItsOwnOldEntriesOnly(t *testing.T) {
	l := newLedger(t)
	globex := Tenant{uuid.NewString(), "globex"}
	trail := l.trail(l, Options{Bytes: 24 << 10})
	l.does(trail, globex, "bob", "quiet")
	l.does(trail, l.acme, "ada", "the oldest")
	l.store(trail)
	for i := range 3000 {
		l.does(trail, l.acme, "eve", fmt.Sprint("flood-", i))
		if i%100 == 0 {
			l.store(trail)
		}
	}
	require.NoError(t, trail.Close(t.Context()))
	select {
	case uid := <-trail.grown:
		require.Equal(t, l.acme.UID, uid)
	default:
		t.Fatal("nobody asked for what is too much to be removed")
	}
	all := l.chunks(l.acme)
	require.NoError(t, trail.removeExcess(t.Context(), client.HasLabels{LabelTenantUID}))
	require.Less(t, len(l.chunks(l.acme)), len(all))
	left := l.names(trail, Query{})
	require.Equal(t, "flood-2999", left[0])
	require.NotContains(t, left, "the oldest")
	require.Equal(t, []string{"quiet"}, l.names(trail, Query{Tenant: globex}))
	require.NoError(t, trail.removeExcess(t.Context(), client.HasLabels{LabelTenantUID}))
	require.Equal(t, left, l.names(trail, Query{}), "the second time nothing goes")
}

func TestOldEntriesAreNotShownAndGo(t *testing.T) {
	l := newLedger(t)
	trail := l.trail(l, Options{Age: 30 * 24 * time.Hour})
	l.does(trail, l.acme, "ada", "old")
	l.store(trail)
	l.pass(29 * 24 * time.Hour)
	require.Equal(t, []string{"old"}, l.names(trail, Query{}))
	l.does(trail, l.acme, "ada", "new")
	l.store(trail)
	require.Len(t, l.chunks(l.acme), 2, "a chunk does not span a month")
	l.pass(2 * 24 * time.Hour)
	require.Equal(t, []string{"new"}, l.names(trail, Query{}))
	require.NoError(t, trail.removeExcess(t.Context(), client.MatchingLabels{LabelTenantUID: l.acme.UID}))
	require.Len(t, l.chunks(l.acme), 1)
}

func TestTheTrailOfATenantThatIsGoneIsFoundByItsName(t *testing.T) {
	l := newLedger(t)
	trail := l.trail(l, Options{})
	first, second := Tenant{uuid.NewString(), "phoenix"}, Tenant{uuid.NewString(), "phoenix"}
	l.does(trail, first, "ada", "one")
	l.does(trail, second, "ada", "two")
	require.NoError(t, trail.Close(t.Context()))
	require.Equal(t, []string{"two", "one"}, l.names(trail, Query{Tenant: Tenant{Name: "phoenix"}}))
	require.Equal(t, []string{"two"}, l.names(trail, Query{Tenant: second}))
}

func TestAPageReadsABoundedNumberOfChunks(t *testing.T) {
	l := newLedger(t)
	trail := l.trail(l, Options{})
	const chunks = maxRead + 10
	for i := range chunks {
		l.does(trail, l.acme, "ada", fmt.Sprint("v-", i))
		l.store(trail)
		trail.queues[l.acme.UID].chunk = nil
	}
	page, err := trail.Read(t.Context(), Query{Tenant: l.acme, User: "nobody"})
	require.NoError(t, err)
	require.Empty(t, page.Entries)
	require.NotEmpty(t, page.Continue)
	page, err = trail.Read(t.Context(), Query{Tenant: l.acme, User: "nobody", Continue: page.Continue})
	require.NoError(t, err)
	require.Empty(t, page.Continue)
	require.Len(t, l.names(trail, Query{}), chunks)
	require.Equal(t, []string{"v-0"}, l.names(trail, Query{Name: "v-0"}))
}
