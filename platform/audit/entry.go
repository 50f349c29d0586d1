package audit

import (
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Entry says who asked for what, from where, and what came of it.
type Entry struct {
	// Time is when the outcome was known, in UTC, to the millisecond; for a stream, when it began.
	Time time.Time `json:"time"`
	// Since is when the first of several refusals was that this entry stands for; Time is when the last was.
	Since *time.Time `json:"since,omitempty"`
	// Count is how many identical refusals it stands for; 0 means that it is one request.
	Count int `json:"count,omitempty"`
	// User is the name of who asked: ada; serviceaccount:red:ci for a service account.
	User string `json:"user"`
	// Session is the ID of the session by which it came, Token that of the API token. One of them is empty.
	Session string `json:"session,omitempty"`
	Token   string `json:"token,omitempty"`
	// Source is the address that the connection came from.
	Source string `json:"source,omitempty"`
	// Verb is what was asked for: create, update, patch, apply, delete, deletecollection; of workloads exec, attach, portforward, log.
	Verb string `json:"verb"`
	// Group and Resource say of which kind, the latter with its subresource: vpc.mnicloud.jp, vpcs; containers/status.
	Group    string `json:"group,omitempty"`
	Resource string `json:"resource"`
	// Name of the object; empty if many were asked for, or one without a name was refused.
	Name string `json:"name,omitempty"`
	// Code is the HTTP status of the outcome; 0 if it is not known, because the client did not wait for the answer.
	Code int `json:"code,omitempty"`
	// Reason is Kubernetes' word for a refusal: Forbidden, NotFound, Invalid.
	Reason string `json:"reason,omitempty"`
}

// Bounds of an entry's texts, in bytes. No name that the API server knows is longer.
const (
	maxWord = 64
	maxName = 253
)

// bound makes an entry small, and its texts such that they say nothing else wherever they are printed.
func (e *Entry) bound() {
	for _, word := range []*string{&e.Session, &e.Token, &e.Source, &e.Verb, &e.Reason} {
		*word = clean(*word, maxWord)
	}
	for _, name := range []*string{&e.User, &e.Group, &e.Resource, &e.Name} {
		*name = clean(*name, maxName)
	}
}

// clean is a text of at most so many bytes without characters that are not printed, or that change how others are: they, and what is no
// UTF-8, are U+FFFD. A text that was longer ends with an ellipsis.
func clean(text string, limit int) string {
	if plain(text) && len(text) <= limit {
		return text
	}
	cut := len(text) > limit
	text = strings.ToValidUTF8(text[:min(len(text), limit)], string(utf8.RuneError))
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, text)
	const ellipsis = "…"
	if !cut && len(text) <= limit {
		return text
	}
	end := min(len(text), limit-len(ellipsis))
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

func plain(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// refusal is the same for entries that tell of the same refusal, but for when it was; it is no refusal if it says no.
func (e *Entry) refusal() (same Entry, is bool) {
	same = *e
	same.Time = time.Time{}
	return same, e.Code >= http.StatusBadRequest
}
