package gateway

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// recheck is how often a watch or a stream asks again whether its caller is still who it was, with the same tenants.
	recheck = 5 * time.Second
	// repermit is how often a shared watch asks again whether its caller may still watch what it does.
	repermit = 20 * time.Second
)

// whileKnown is the request's context, which ends when the caller is not who it was any more: the token has expired or was revoked,
// a tenant or a role was given or taken. The client begins again as who it is then.
func (q *call) whileKnown() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(q.r.Context())
	header := http.Header{"Authorization": q.r.Header.Values("Authorization")}
	end := q.checks.begin("caller "+fingerprint(header, q.id), recheck, cancel, func(ctx context.Context) bool {
		again, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		if err != nil {
			return false
		}
		again.Header = header.Clone()
		id, err := q.config.Authenticator.Authenticate(again)
		return err == nil && q.id.equal(id)
	})
	return ctx, func() {
		end()
		cancel()
	}
}

// fingerprint is the same for the same values.
func fingerprint(values ...any) string {
	sum := sha256.New()
	for _, v := range values {
		fmt.Fprintf(sum, "%#v\n", v)
	}
	return string(sum.Sum(nil))
}

func (id *Identity) equal(other *Identity) bool {
	return id.User == other.User && id.Name == other.Name && id.Administrator == other.Administrator &&
		slices.Equal(slices.Sorted(slices.Values(id.Groups)), slices.Sorted(slices.Values(other.Groups))) && maps.Equal(id.Tenants, other.Tenants)
}

// checks are asked again and again while requests last that depend on the answer, once for all that ask the same.
type checks struct {
	mu    sync.Mutex
	asked map[string]*check
}

type check struct {
	stop context.CancelFunc
	// requests are what ends them.
	requests map[int]func()
	next     int
}

// begin has a check made every so often, and calls fail once it does not hold, until end is called. Requests with the same key share
// the check of the first.
func (c *checks) begin(key string, every time.Duration, fail func(), holds func(context.Context) bool) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked, ok := c.asked[key]
	if !ok {
		ctx, cancel := context.WithCancel(context.Background())
		asked = &check{stop: cancel, requests: map[int]func(){}}
		if c.asked == nil {
			c.asked = map[string]*check{}
		}
		c.asked[key] = asked
		go c.repeat(ctx, key, asked, every, holds)
	}
	number := asked.next
	asked.next++
	asked.requests[number] = fail
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(asked.requests, number)
		if len(asked.requests) == 0 {
			c.forget(key, asked)
		}
	}
}

func (c *checks) forget(key string, asked *check) {
	asked.stop()
	if c.asked[key] == asked {
		delete(c.asked, key)
	}
}

// repeat asks until somebody stops it or the check fails.
func (c *checks) repeat(ctx context.Context, key string, asked *check, every time.Duration, holds func(context.Context) bool) {
	// Not all at the same moment.
	timer := time.NewTimer(every/2 + rand.N(every/2)) //nolint:gosec // no secret
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		limited, cancel := context.WithTimeout(ctx, every)
		held := holds(limited)
		cancel()
		if !held {
			break
		}
		timer.Reset(every)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(key, asked)
	for _, fail := range asked.requests {
		fail()
	}
}
