package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

// call is one request about objects, on its way.
type call struct {
	*Gateway
	w      http.ResponseWriter
	r      *http.Request
	id     *Identity
	target *target
	// query for the API server.
	query url.Values
	// recorded is what of it the audit trail will have; nil for nothing.
	recorded *recorded
}

func (q *call) refuse(p *problem) {
	q.recorded.refused(p.code, p.reason)
	refuse(q.w, q.r, p)
}

// failed says that the API server gave no answer. What the library says of it has addresses that are not the caller's business.
func (q *call) failed(err error) {
	if q.r.Context().Err() != nil {
		return // the client has gone
	}
	if errors.Is(err, context.DeadlineExceeded) {
		q.refuse(newProblem(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "", "the API server did not answer within %s", requestTimeout))
		return
	}
	q.config.Log.Error("the API server gave no answer", "error", err)
	q.refuse(unavailable("the API server gave no answer; try again"))
}

// handedOn are the headers of the API server's answers that clients get.
var handedOn = []string{"Audit-Id", "Retry-After", "Warning"}

// answer hands on an answer of the API server.
func (q *call) answer(a *answer, form accepted) {
	q.recorded.answered(a)
	out := newOutbound(q.target, q.id)
	document, err := out.document(a.body)
	if err != nil {
		q.config.Log.Error("the API server's answer is no document", "status", a.code, "error", err)
		q.refuse(newProblem(http.StatusBadGateway, metav1.StatusReasonInternalError, "", "the API server's answer was not understood"))
		return
	}
	q.headers(a.header, out)
	q.write(a.code, document, out, form)
}

func (q *call) headers(from http.Header, out *outbound) {
	for _, name := range handedOn {
		for _, value := range from.Values(name) {
			q.w.Header().Add(name, out.names.Replace(value))
		}
	}
}

// write writes a document in the form that the client takes.
func (q *call) write(code int, document map[string]any, out *outbound, form accepted) {
	body, err := out.encode(document)
	if err != nil {
		q.failed(err)
		return
	}
	contentType := typeJSON
	switch {
	case code >= http.StatusBadRequest && document["kind"] == "Status" && plain(q.r):
		var status metav1.Status
		if err := json.Unmarshal(body, &status); err != nil {
			q.failed(err)
			return
		}
		writeStatus(q.w, q.r, &status)
		return
	case form.yaml:
		contentType = typeYAML
		if body, err = sigsyaml.JSONToYAML(body); err != nil {
			q.failed(err)
			return
		}
	}
	q.w.Header().Set("Content-Type", contentType)
	q.w.WriteHeader(code)
	_, _ = q.w.Write(body)
}

// parseQuery reads a query that has no two readings.
func parseQuery(r *http.Request) (url.Values, *problem) {
	if strings.Contains(r.URL.RawQuery, ";") || len(r.URL.RawQuery) > 1<<15 {
		return nil, badRequest("", "the query has a ';', or is too long")
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("", "the query cannot be read: %s", err)
	}
	return values, nil
}
