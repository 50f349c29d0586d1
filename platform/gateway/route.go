package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// route answers a request of somebody known.
func (g *Gateway) route(w http.ResponseWriter, r *http.Request, id *Identity) {
	parts, p := segments(r)
	if p != nil {
		refuse(w, r, p)
		return
	}
	c := g.kinds.catalog()
	switch {
	case len(parts) > 3 && parts[0] == "apis":
		g.resource(w, r, id, c, schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:])
	case len(parts) > 2 && parts[0] == "api" && parts[1] == "v1":
		g.resource(w, r, id, c, schema.GroupVersion{Version: "v1"}, parts[2:])
	case len(parts) == 1 && parts[0] == applyPath && r.Method == http.MethodPost:
		g.applyDocuments(w, r, id, c)
	case len(parts) == 1 && parts[0] == auditPath:
		g.audit(w, r, id, c)
	case r.Method != http.MethodGet:
		refuse(w, r, methodNotAllowed("only GET is taken here"))
	case len(parts) > 0 && (parts[0] == "api" || parts[0] == "apis"):
		c.discover(w, r, id, parts)
	case len(parts) > 1 && parts[0] == "openapi" && parts[1] == "v3":
		g.openAPI(w, r, id, c, parts[2:])
	case len(parts) == 1 && parts[0] == "version":
		g.version(w, r)
	default:
		refuse(w, r, notFound("there is nothing here: the API is under /apis/, and /openapi/v3 describes it"))
	}
}

// resource answers a request about objects of a kind.
func (g *Gateway) resource(w http.ResponseWriter, r *http.Request, id *Identity, c *catalog, gv schema.GroupVersion, rest []string) {
	values, p := parseQuery(r)
	if p != nil {
		refuse(w, r, p)
		return
	}
	t, p := findTarget(c, id, gv, rest, r.Method, wantsWatch(values))
	if p != nil {
		refuse(w, r, p)
		return
	}
	q := &call{Gateway: g, w: w, r: r, id: id, target: t}
	if q.recorded, p = g.record(r, id, t, values); p != nil {
		refuse(w, r, p)
		return
	}
	defer q.recorded.end()
	if q.query, p = t.query(values, id); p != nil {
		q.refuse(p)
		return
	}
	switch {
	case t.stream():
		q.stream()
	case r.Header.Get("Upgrade") != "":
		q.refuse(badRequest("", "%s carry no other protocol", t.resource()))
	case t.verb == verbWatch:
		q.watch()
	case t.verb == verbList && q.scattered():
		q.gather()
	default:
		q.object()
	}
}

// object asks the API server for one answer and hands it on.
func (q *call) object() {
	form, p := accept(q.r)
	if p != nil {
		q.refuse(p)
		return
	}
	body, mediaType, p := q.body()
	if p != nil {
		q.refuse(p)
		return
	}
	q.recorded.sends(q.target, body, q.query)
	ctx, cancel := context.WithTimeout(q.r.Context(), requestTimeout)
	defer cancel()
	if q.target.user() && q.target.verb == verbUpdate && q.target.subresource == "" {
		kept, refused, err := q.keepPassword(ctx, body)
		switch {
		case err != nil:
			q.failed(err)
			return
		case refused != nil:
			q.answer(refused, form)
			return
		}
		body = kept
	}
	request, err := q.upstream.request(ctx, q.id, q.r.Method, q.target.path(), q.query, readerOf(body))
	if err != nil {
		q.failed(err)
		return
	}
	request.Header.Set("Accept", form.upstream)
	if mediaType != "" {
		request.Header.Set("Content-Type", mediaType)
	}
	request.Header.Set("User-Agent", q.r.UserAgent())
	answer, err := q.upstream.do(request)
	if err != nil {
		q.failed(err)
		return
	}
	q.answer(answer, form)
}

// readerOf is nil for no body.
func readerOf(body []byte) io.Reader {
	if body == nil {
		return nil
	}
	return bytes.NewReader(body)
}

// body is the request's body as the API server takes it; nil if the verb has none.
func (q *call) body() (body []byte, mediaType string, p *problem) {
	if q.target.verb == verbGet || q.target.verb == verbList {
		return nil, "", nil
	}
	if mediaType, p = contentType(q.r); p != nil {
		return nil, "", p
	}
	sent, p := readBody(q.w, q.r)
	if p != nil {
		return nil, "", p
	}
	body, mediaType, p = q.target.inbound(sent, mediaType, q.id)
	if p == nil && len(body) > 0 && (q.target.verb == verbDelete || q.target.verb == verbDeleteCollection) {
		for _, name := range deleting { // the API server would pass over them, a dry run too
			if q.query.Has(name) {
				return nil, "", badRequest(name, "a deletion with a body takes its options from there: put %s into it, or send none", name)
			}
		}
	}
	return body, mediaType, p
}
