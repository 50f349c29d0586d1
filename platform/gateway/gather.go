package gateway

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
)

// part of a list that the caller may not ask for as a whole.
type part struct {
	namespace string
	query     url.Values
}

// scattered tells whether what the request asks for is in several places of which the caller may see only some: the resources of
// all its tenants, its own User and Tenants. Administrators may ask for the whole.
func (q *call) scattered() bool {
	return !q.id.Administrator && q.target.name == "" && (q.target.across() || q.target.ownOnly())
}

// parts are the places.
func (q *call) parts() []part {
	var parts []part
	query := func() url.Values {
		query := maps.Clone(q.query)
		query.Del("limit")
		query.Del("continue")
		return query
	}
	for _, tenant := range slices.Sorted(maps.Keys(q.id.Tenants)) {
		if namespace := q.id.Tenants[tenant]; q.target.across() && namespace != "" {
			parts = append(parts, part{namespace, query()})
		}
	}
	own := slices.Sorted(maps.Keys(q.id.Tenants))
	if q.target.plural == "users" {
		own = []string{q.id.Name}
		if q.id.Name == "" { // a service account
			own = nil
		}
	}
	if q.target.ownOnly() {
		for _, name := range own {
			query := query()
			selector := fields.OneTermEqualSelector("metadata.name", name).String()
			if s := query.Get("fieldSelector"); s != "" {
				selector = s + "," + selector
			}
			query.Set("fieldSelector", selector)
			parts = append(parts, part{query: query})
		}
	}
	return parts
}

// gather answers a list from its parts, all as of the same version.
func (q *call) gather() {
	form, p := accept(q.r)
	if p != nil {
		q.refuse(p)
		return
	}
	ctx, cancel := context.WithTimeout(q.r.Context(), requestTimeout)
	defer cancel()
	out := newOutbound(q.target, q.id)
	var whole map[string]any
	for _, part := range q.parts() {
		if version := versionOf(whole); version != "" {
			part.query.Set("resourceVersion", version)
			part.query.Set("resourceVersionMatch", "Exact")
		}
		answer, err := q.listPart(ctx, part, form)
		if err != nil {
			q.failed(err)
			return
		}
		if answer.code != http.StatusOK {
			q.answer(answer, form)
			return
		}
		document, err := out.document(answer.body)
		if err != nil {
			q.failed(err)
			return
		}
		whole = join(whole, document)
	}
	if whole == nil {
		whole = map[string]any{
			"apiVersion": q.target.as.String(), "kind": q.target.listKind, "metadata": map[string]any{"resourceVersion": ""}, "items": []any{},
		}
	}
	q.write(http.StatusOK, whole, out, form)
}

func (q *call) listPart(ctx context.Context, part part, form accepted) (*answer, error) {
	request, err := q.upstream.request(ctx, q.id, http.MethodGet, q.target.pathIn(part.namespace), part.query, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", form.upstream)
	request.Header.Set("User-Agent", q.r.UserAgent())
	return q.upstream.do(request)
}

// join adds a part to the parts before it.
func join(whole, part map[string]any) map[string]any {
	if whole == nil {
		return part
	}
	for _, field := range []string{"items", "rows"} {
		items, ok := part[field].([]any)
		if !ok {
			continue
		}
		before, _ := whole[field].([]any)
		whole[field] = append(before, items...)
	}
	return whole
}

// versionOf is the version as of which a list is.
func versionOf(list map[string]any) string {
	metadata, _ := list["metadata"].(map[string]any)
	version, _ := metadata["resourceVersion"].(string)
	return version
}
