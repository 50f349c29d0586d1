package account

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// AuditEntry says who asked for what in a tenant, and what came of it.
type AuditEntry struct {
	// Time is when the outcome was known. For several identical refusals in one entry it is that of the last, Since that of the first, and
	// Count says how many they were.
	Time  time.Time  `json:"time"`
	Since *time.Time `json:"since,omitempty"`
	Count int        `json:"count,omitempty"`
	User  string     `json:"user"`
	// Session is the ID of the session that it came by, or Token that of the API token.
	Session string `json:"session,omitempty"`
	Token   string `json:"token,omitempty"`
	// Source is the address that it came from.
	Source string `json:"source,omitempty"`
	Verb   string `json:"verb"`
	// Group and Resource are the kind, the latter with a subresource if that was asked for.
	Group    string `json:"group,omitempty"`
	Resource string `json:"resource"`
	Name     string `json:"name,omitempty"`
	// Code is the HTTP status of the outcome, 0 if that is not known, Reason Kubernetes' word for a refusal.
	Code   int    `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// AuditQuery chooses entries of a tenant's audit trail. Zero values choose all.
type AuditQuery struct {
	// Tenant is the tenant's name. With Former it is of those that had the name and are no more.
	Tenant string
	Former bool
	// Since and Until bound the time.
	Since, Until time.Time
	// User, Verb, Resource and Name are what entries must have.
	User, Verb, Resource, Name string
	// Limit is how many at most in one answer; the gateway has a bound of its own.
	Limit int
	// Continue is what the answer before said.
	Continue string
}

func (q *AuditQuery) encode() string {
	values := url.Values{}
	set := func(name, value string) {
		if value != "" {
			values.Set(name, value)
		}
	}
	for name, at := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !at.IsZero() {
			set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	if q.Former {
		set("former", "true")
	}
	if q.Limit > 0 {
		set("limit", strconv.Itoa(q.Limit))
	}
	for name, value := range map[string]string{
		"tenant": q.Tenant, "user": q.User, "verb": q.Verb, "resource": q.Resource, "name": q.Name, "continue": q.Continue,
	} {
		set(name, value)
	}
	return values.Encode()
}

// Audit reads a part of a tenant's audit trail, the newest entry first. next is how the next part is asked for, empty if there is none.
func (c *Client) Audit(ctx context.Context, access string, q *AuditQuery) (entries []AuditEntry, next string, err error) {
	var answer struct {
		Entries  []AuditEntry `json:"entries"`
		Continue string       `json:"continue"`
	}
	_, err = c.call(ctx, http.MethodGet, "/audit?"+q.encode(), access, nil, &answer)
	return answer.Entries, answer.Continue, err
}
