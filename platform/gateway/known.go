package gateway

import (
	"context"
	"maps"
	"slices"
	"time"
)

// whileKnown is the request's context, which ends when the caller is not who it was any more: the token has expired or was revoked,
// a tenant or a role was given or taken. The client begins again as who it is then.
func (q *call) whileKnown() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(q.r.Context())
	go func() {
		defer cancel()
		ticker := time.NewTicker(recheck)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			id, err := q.config.Authenticator.Authenticate(q.r)
			if err != nil || !q.id.equal(id) {
				return
			}
		}
	}()
	return ctx, cancel
}

func (id *Identity) equal(other *Identity) bool {
	return id.User == other.User && id.Name == other.Name && id.Administrator == other.Administrator &&
		slices.Equal(slices.Sorted(slices.Values(id.Groups)), slices.Sorted(slices.Values(other.Groups))) && maps.Equal(id.Tenants, other.Tenants)
}
