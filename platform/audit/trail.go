package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrFull says that there is no room for another entry: those that there are could not be stored yet.
var ErrFull = errors.New("the audit trail cannot be written at the moment")

// Tenant is whose trail an entry belongs to.
type Tenant struct {
	// UID is the Tenant's, which no other has after it, and the name of its namespace.
	UID string
	// Name of the Tenant.
	Name string
}

// Options of a Trail. Zero values mean the defaults.
type Options struct {
	// Namespace keeps the chunks; mni-system by default.
	Namespace string
	// Capacity is how many entries may wait to be stored; 10,000 by default, of at most 1.5 KiB. One tenant may have a quarter of it.
	Capacity int
	// Age is how long entries are kept at least, and shown at most; 90 days by default.
	Age time.Duration
	// Bytes is how much is kept of one tenant; 2 MiB by default. The oldest entries go first.
	Bytes int64
	// Log takes what the operator should know.
	Log *slog.Logger
	// Now is the world's clock.
	Now func() time.Time
}

func (o Options) complete() Options {
	if o.Namespace == "" {
		o.Namespace = "mni-system"
	}
	if o.Capacity == 0 {
		o.Capacity = 10000
	}
	if o.Age == 0 {
		o.Age = 90 * 24 * time.Hour
	}
	if o.Bytes == 0 {
		o.Bytes = 2 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

const (
	// interval is how long an entry waits for others to be stored with.
	interval = 250 * time.Millisecond
	// foldFor is for how long refusals that are the same as one which was stored are gathered into one entry.
	foldFor = 10 * time.Second
	// atOnce is how many tenants' entries are stored at the same time.
	atOnce = 8
	// storeTimeout bounds one write.
	storeTimeout = 10 * time.Second
	// sayEvery is how often the log is told that nothing can be written.
	sayEvery = 10 * time.Second
)

// Trail records entries and reads them. It must run (Run), and be closed at last (Close).
type Trail struct {
	client  client.Client
	options Options
	// writer tells the chunks of this process from others'.
	writer string
	// grown takes UIDs of tenants of whom much was written.
	grown chan string

	mu sync.Mutex
	// held is how much of the capacity is taken.
	held   int
	queues map[string]*queue

	// storing is held by who stores: queues' batches and chunks are its.
	storing sync.Mutex
}

// New makes a Trail. The client needs no cache.
func New(c client.Client, o Options) *Trail {
	return &Trail{
		client: c, options: o.complete(), writer: strings.ToLower(rand.Text()[:8]), grown: make(chan string, 64), queues: map[string]*queue{},
	}
}

// Place is room for one entry. It is not safe for concurrent use.
type Place struct {
	trail *Trail
	uid   string
	gone  bool
}

// Reserve takes room for one entry of a tenant; its UID may be empty when it is not known yet. It fails with ErrFull.
func (t *Trail) Reserve(uid string) (*Place, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queueOf(uid)
	if t.held >= t.options.Capacity || uid != "" && q.held >= max(1, t.options.Capacity/4) {
		return nil, ErrFull
	}
	t.held++
	q.held++
	return &Place{trail: t, uid: uid}, nil
}

// Release gives the room back, if no entry has it.
func (p *Place) Release() {
	if p.gone {
		return
	}
	p.gone = true
	p.trail.mu.Lock()
	defer p.trail.mu.Unlock()
	p.trail.free(p.uid, 1)
}

// Record puts an entry into the room, with the present time. The second time it does nothing.
func (p *Place) Record(tenant Tenant, e Entry) {
	if p.gone {
		return
	}
	p.gone = true
	t := p.trail
	e.bound()
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.uid != tenant.UID {
		t.queueOf(p.uid).held--
		t.queueOf(tenant.UID).held++
	}
	t.add(tenant, e)
}

// Record records an entry with the present time for which no room was taken: one of many by one request that has room for one.
func (t *Trail) Record(tenant Tenant, e Entry) {
	e.bound()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held++
	t.queueOf(tenant.UID).held++
	t.add(tenant, e)
}

// add puts an entry into room that its tenant has. The lock must be held.
func (t *Trail) add(tenant Tenant, e Entry) {
	q := t.queueOf(tenant.UID)
	q.tenant = tenant
	e.Time = t.options.Now().UTC().Truncate(time.Millisecond)
	if folded := q.add(e); folded {
		t.free(tenant.UID, 1)
	}
}

// queueOf is the queue of a tenant. The lock must be held.
func (t *Trail) queueOf(uid string) *queue {
	q, ok := t.queues[uid]
	if !ok {
		q = newQueue()
		t.queues[uid] = q
	}
	return q
}

// free gives room of a tenant's back. The lock must be held.
func (t *Trail) free(uid string, places int) {
	t.held -= places
	t.queueOf(uid).held -= places
}

// waiting is how many entries are not stored yet, with what there is room taken for.
func (t *Trail) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held
}

// Run stores entries and removes old ones until the context ends.
func (t *Trail) Run(ctx context.Context) error {
	var collector sync.WaitGroup
	defer collector.Wait()
	collector.Go(func() { t.collect(ctx) })
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var said time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if _, err := t.store(ctx, false); err != nil && ctx.Err() == nil && time.Since(said) > sayEvery {
			said = time.Now()
			t.options.Log.Error("the audit trail is not written", "waiting", t.waiting(), "error", err)
		}
	}
}

// Close stores what there is, and tries again until the context ends. It is called when nothing more is recorded.
func (t *Trail) Close(ctx context.Context) error {
	for {
		stored, err := t.store(ctx, true)
		if err == nil && stored == 0 {
			return nil
		}
		if err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(interval):
		}
	}
}
