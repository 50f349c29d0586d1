package gateway

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// problem is an error that a client is told, the same to all kinds of clients.
type problem struct {
	code   int
	reason metav1.StatusReason
	// field that is wrong, as a path; empty when it is none.
	field, message string
	// retryAfter is after how many seconds to try again; 0 means that it says nothing of that.
	retryAfter int
}

func newProblem(code int, reason metav1.StatusReason, field, format string, args ...any) *problem {
	return &problem{code: code, reason: reason, field: field, message: fmt.Sprintf(format, args...)}
}

func badRequest(field, format string, args ...any) *problem {
	return newProblem(http.StatusBadRequest, metav1.StatusReasonBadRequest, field, format, args...)
}

func forbidden(format string, args ...any) *problem {
	return newProblem(http.StatusForbidden, metav1.StatusReasonForbidden, "", format, args...)
}

func notFound(format string, args ...any) *problem {
	return newProblem(http.StatusNotFound, metav1.StatusReasonNotFound, "", format, args...)
}

func methodNotAllowed(format string, args ...any) *problem {
	return newProblem(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "", format, args...)
}

func tooLarge(format string, args ...any) *problem {
	return newProblem(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "", format, args...)
}

func tooMany(seconds int, format string, args ...any) *problem {
	p := newProblem(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "", format, args...)
	p.retryAfter = seconds
	return p
}

func unavailable(format string, args ...any) *problem {
	p := newProblem(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "", format, args...)
	p.retryAfter = 1
	return p
}

// status is the problem as Kubernetes says it.
func (p *problem) status() *metav1.Status {
	s := &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(p.code), Reason: p.reason, Message: p.message, //nolint:gosec // an HTTP status
	}
	if p.field != "" || p.retryAfter > 0 {
		s.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(p.retryAfter)} //nolint:gosec // seconds
	}
	if p.field != "" {
		s.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: p.field, Message: p.message}}
	}
	return s
}

// Problem is an error as RFC 9457 says it, for clients that do not speak Kubernetes.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Reason is Kubernetes' word for the error: NotFound, Forbidden, Invalid.
	Reason string         `json:"reason,omitempty"`
	Errors []ProblemField `json:"errors,omitempty"`
}

// ProblemField is what is wrong with one field.
type ProblemField struct {
	// Field is its path as Kubernetes writes it: spec.ports[0].port.
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

func problemOf(s *metav1.Status) *Problem {
	p := &Problem{Type: "about:blank", Title: http.StatusText(int(s.Code)), Status: int(s.Code), Detail: s.Message, Reason: string(s.Reason)}
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			p.Errors = append(p.Errors, ProblemField{Field: c.Field, Detail: c.Message})
		}
	}
	return p
}

// plain tells whether the client is none of Kubernetes': it asks for problems, or takes anything.
func plain(r *http.Request) bool {
	kubernetes := false
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		mediaType, _, err := mime.ParseMediaType(part)
		switch {
		case err != nil:
		case mediaType == "application/problem+json":
			return true
		case strings.HasPrefix(mediaType, "application/") && mediaType != "application/*":
			kubernetes = true
		}
	}
	return !kubernetes
}

// refuse answers with a problem.
func refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(p.retryAfter))
	}
	if p.code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="mNi Cloud"`)
	}
	writeStatus(w, r, p.status())
}

// writeStatus answers with a Status, or the same as a problem.
func writeStatus(w http.ResponseWriter, r *http.Request, s *metav1.Status) {
	var answer any = s
	contentType := "application/json"
	if plain(r) {
		answer, contentType = problemOf(s), "application/problem+json"
	}
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(int(s.Code))
	_, _ = w.Write(append(body, '\n'))
}
