package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/mnicloud/mnicloud/platform/audit"
)

// auditPath is where tenants' audit trails are read.
const auditPath = "audit"

// ofReaders are the limits of one user's requests for audit trails: a small part of all, for each may read many chunks.
func ofReaders(all Limits) Limits {
	all = all.complete()
	return Limits{PerSecond: all.PerSecond / 20, Burst: max(1, all.Burst/8), AtOnce: max(1, all.AtOnce/500)}
}

// auditParameters are those of a request for an audit trail.
var auditParameters = []string{"tenant", "former", "since", "until", "user", "verb", "resource", "name", "limit", "continue"}

// auditTrail is a part of a tenant's audit trail, the newest entry first.
type auditTrail struct {
	Tenant  string        `json:"tenant"`
	Entries []audit.Entry `json:"entries"`
	// Continue is the parameter by which the next part is asked for; empty if there is none.
	Continue string `json:"continue,omitempty"`
}

// audit answers with a tenant's audit trail, to who may read it: who has the right to get tenants/audit of that name, which exists to be
// asked about. With former it is that of all Tenants that ever had the name, for who has the right of all.
func (g *Gateway) audit(w http.ResponseWriter, r *http.Request, id *Identity, c *catalog) {
	release, p := g.trails.enter(id.User)
	if p == nil {
		defer release()
		var answer *auditTrail
		if answer, p = g.readAudit(r, id, c); p == nil {
			text, err := json.Marshal(answer)
			if err != nil {
				refuse(w, r, unavailable("the answer could not be written: %s", err))
				return
			}
			w.Header().Set("Content-Type", typeJSON)
			_, _ = w.Write(append([]byte(id.toNames().Replace(string(text))), '\n'))
			return
		}
	}
	refuse(w, r, p)
}

func (g *Gateway) readAudit(r *http.Request, id *Identity, c *catalog) (*auditTrail, *problem) {
	if r.Method != http.MethodGet {
		return nil, methodNotAllowed("only GET is taken here")
	}
	if g.config.Trail == nil {
		return nil, notFound("this gateway keeps no audit trail")
	}
	values, p := parseQuery(r)
	if p != nil {
		return nil, p
	}
	query, former, p := auditQuery(values, c)
	if p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	if query.Tenant.UID, p = g.mayReadAudit(ctx, id, query.Tenant.Name, former); p != nil {
		return nil, p
	}
	page, err := g.config.Trail.Read(ctx, query)
	if errors.Is(err, audit.ErrContinue) {
		return nil, badRequest("continue", "continue: %s: send what the answer before had, or leave it out", err)
	}
	if err != nil {
		g.config.Log.Error("an audit trail was not read", "error", err)
		return nil, unavailable("the audit trail could not be read; try again")
	}
	return &auditTrail{query.Tenant.Name, page.Entries, page.Continue}, nil
}

// mayReadAudit is the UID by which a tenant's trail is found, if the caller may read it; none for former Tenants.
func (g *Gateway) mayReadAudit(ctx context.Context, id *Identity, tenant string, former bool) (uid string, p *problem) {
	right := &authorizationv1.ResourceAttributes{Group: groupAuth, Resource: "tenants", Subresource: "audit", Verb: verbGet}
	if former {
		if !g.upstream.permits(ctx, id, right) {
			return "", forbidden("the audit trails of tenants that are no more are for the cloud's administrators")
		}
		return "", nil
	}
	uid, ok := id.Tenants[tenant]
	if !ok {
		return "", forbidden("tenants/audit: you are not a member of a tenant of that name")
	}
	if uid == "" {
		return "", unavailable("tenant %q is being made; try again", tenant)
	}
	right.Name = tenant
	if !g.upstream.permits(ctx, id, right) {
		return "", forbidden("only an owner of tenant %q, or the cloud's administrator, reads its audit trail", tenant)
	}
	return uid, nil
}

// auditQuery reads the query of a request for an audit trail.
func auditQuery(values url.Values, c *catalog) (query audit.Query, former bool, p *problem) {
	for name, given := range values {
		if !slices.Contains(auditParameters, name) {
			return query, false, badRequest(name, "there is no query parameter %q here: %v", name, auditParameters)
		}
		if len(given) != 1 {
			return query, false, badRequest(name, "query parameter %q may stand only once", name)
		}
	}
	query = audit.Query{
		Tenant: audit.Tenant{Name: values.Get("tenant")}, User: values.Get("user"), Verb: values.Get("verb"), Name: values.Get("name"), Continue: values.Get("continue"),
	}
	if !segment.MatchString(query.Tenant.Name) {
		return query, false, badRequest("tenant", "query parameter tenant must be the name of a tenant")
	}
	if text := values.Get("former"); text != "" {
		var err error
		if former, err = strconv.ParseBool(text); err != nil {
			return query, false, badRequest("former", "query parameter former must be true or false")
		}
	}
	for name, at := range map[string]*time.Time{"since": &query.Since, "until": &query.Until} {
		text := values.Get(name)
		if text == "" {
			continue
		}
		var err error
		if *at, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return query, false, badRequest(name, "query parameter %s must be a time as 2006-01-02T15:04:05Z", name)
		}
	}
	if text := values.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 || limit > audit.MaxLimit {
			return query, false, badRequest("limit", "query parameter limit must be a number from 1 to %d", audit.MaxLimit)
		}
		query.Limit = limit
	}
	if word := values.Get("resource"); word != "" {
		query.Resources = c.plurals(word)
	}
	return query, former, nil
}

// plurals are those of the kinds that somebody may mean by a word, beside the word itself: a kind may be no more.
func (c *catalog) plurals(word string) []string {
	out := []string{word}
	for _, g := range c.groups {
		for _, v := range g.versions {
			for _, k := range v.kinds {
				if k.singular == word || slices.Contains(k.shortNames, word) {
					out = append(out, k.plural)
				}
			}
		}
	}
	return out
}
