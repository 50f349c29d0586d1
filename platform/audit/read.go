package audit

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrContinue says that the token of a next page is none.
var ErrContinue = errors.New("the token of the next page cannot be read")

const (
	// MaxLimit is how many entries a page has at most, usualLimit if the query does not say.
	MaxLimit   = 500
	usualLimit = 100
	// maxRead is how many chunks are read for one page. A page is then shorter, and there is a next one.
	maxRead = 64
)

// Query asks for entries of one tenant.
type Query struct {
	// Tenant whose entries are asked for. Without a UID they are those of all Tenants that ever had the name.
	Tenant Tenant
	// Since and Until bound their time; zero values do not.
	Since, Until time.Time
	// User, Verb and Name are what entries must have; empty is anything.
	User, Verb, Name string
	// Resources are of what kinds, by their plurals; entries about subresources of them count. None is anything.
	Resources []string
	// Limit is how many at most; 0 is the usual number.
	Limit int
	// Continue is what the page before said.
	Continue string
}

// Page of entries, the newest first.
type Page struct {
	Entries []Entry
	// Continue asks for the next page; empty if there is none.
	Continue string
}

// position is a place in the order of entries: newest first, and among those of one time by chunk and place in it, from behind.
type position struct {
	Time  time.Time `json:"t"`
	Chunk string    `json:"c"`
	Index int       `json:"i"`
}

func (p position) compare(o position) int {
	return cmp.Or(p.Time.Compare(o.Time), cmp.Compare(p.Chunk, o.Chunk), cmp.Compare(p.Index, o.Index))
}

func (p position) token() (string, error) {
	text, err := json.Marshal(p)
	return base64.RawURLEncoding.EncodeToString(text), err
}

// before is the position that a token says; without one, it is before all.
func before(token string) (position, error) {
	p := position{Time: time.Unix(1<<40, 0)}
	if token == "" {
		return p, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || json.Unmarshal(text, &p) != nil {
		return p, ErrContinue
	}
	return p, nil
}

// found is an entry with its position.
type found struct {
	position
	entry Entry
}

// newest is a heap with the newest on top.
type newest []found

func (n newest) Len() int           { return len(n) }
func (n newest) Less(i, j int) bool { return n[i].compare(n[j].position) > 0 }
func (n newest) Swap(i, j int)      { n[i], n[j] = n[j], n[i] }

// Push implements heap.Interface.
func (n *newest) Push(x any) {
	if f, ok := x.(found); ok {
		*n = append(*n, f)
	}
}

// Pop implements heap.Interface.
func (n *newest) Pop() any {
	last := (*n)[len(*n)-1]
	*n = (*n)[:len(*n)-1]
	return last
}

// Read reads a page. It fails with ErrContinue, or when the API server does.
func (t *Trail) Read(ctx context.Context, q Query) (Page, error) {
	if q.Limit <= 0 {
		q.Limit = usualLimit
	}
	q.Limit = min(q.Limit, MaxLimit)
	if oldest := t.options.Now().Add(-t.options.Age); q.Since.Before(oldest) {
		q.Since = oldest
	}
	from, err := before(q.Continue)
	if err != nil {
		return Page{}, err
	}
	chunks, err := t.chunksFor(ctx, &q, from)
	if err != nil {
		return Page{}, err
	}
	page := Page{Entries: []Entry{}}
	var at newest
	for read := 0; ; {
		// The newest entry is known once no chunk that was not read can have a newer one.
		for len(chunks) > 0 && (len(at) == 0 || !chunks[0].until.Before(at[0].Time)) {
			stop := position{chunks[0].until, "~", math.MaxInt} // what comes after this was not looked at
			if read++; read > maxRead && stop.compare(from) < 0 {
				page.Continue, err = stop.token()
				return page, err
			}
			if err := t.readChunk(ctx, &q, chunks[0], from, &at); err != nil {
				return Page{}, err
			}
			chunks = chunks[1:]
		}
		if len(at) == 0 {
			return page, nil
		}
		if len(page.Entries) == q.Limit {
			page.Continue, err = from.token()
			return page, err
		}
		next, _ := heap.Pop(&at).(found)
		page.Entries = append(page.Entries, next.entry)
		from = next.position
	}
}

// chunksFor are the chunks that may have what is asked for, that with the newest entry first.
func (t *Trail) chunksFor(ctx context.Context, q *Query, from position) ([]about, error) {
	labels := client.MatchingLabels{LabelTenantUID: q.Tenant.UID}
	if q.Tenant.UID == "" {
		labels = client.MatchingLabels{LabelTenant: q.Tenant.Name}
	}
	var chunks []about
	err := t.each(ctx, labels, func(c about) error {
		if !c.until.Before(q.Since) && (q.Until.IsZero() || !c.from.After(q.Until)) && !c.from.After(from.Time) {
			chunks = append(chunks, c)
		}
		return nil
	})
	slices.SortFunc(chunks, func(a, b about) int { return cmp.Or(b.until.Compare(a.until), strings.Compare(b.name, a.name)) })
	return chunks, err
}

// readChunk adds a chunk's entries that are asked for and come after a position.
func (t *Trail) readChunk(ctx context.Context, q *Query, c about, from position, at *newest) error {
	stored := &corev1.ConfigMap{}
	err := t.client.Get(ctx, client.ObjectKey{Namespace: t.options.Namespace, Name: c.name}, stored)
	if apierrors.IsNotFound(err) {
		return nil // it was too old
	}
	if err != nil {
		return fmt.Errorf("read chunk %s: %w", c.name, err)
	}
	entries, err := entriesOf(stored)
	if err != nil {
		t.options.Log.Error("a chunk of the audit trail cannot be read", "error", err)
		return nil
	}
	place := placeOf(c.name, c.tenant)
	for i, e := range entries {
		f := found{position{e.Time, place, i}, e}
		if q.asks(&e) && f.compare(from) < 0 {
			heap.Push(at, f)
		}
	}
	return nil
}

// asks tells whether an entry is one of those that are asked for.
func (q *Query) asks(e *Entry) bool {
	resource, _, _ := strings.Cut(e.Resource, "/")
	switch {
	case e.Time.Before(q.Since), !q.Until.IsZero() && e.Time.After(q.Until):
		return false
	case q.User != "" && e.User != q.User, q.Verb != "" && e.Verb != q.Verb, q.Name != "" && e.Name != q.Name:
		return false
	}
	return len(q.Resources) == 0 || slices.Contains(q.Resources, resource)
}
