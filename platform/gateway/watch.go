package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/mnicloud/mnicloud/platform/gateway/fanout"
)

// slowest is how long a client may take to read what it is sent.
const slowest = 30 * time.Second

// aWatch is one client's watch. It begins as a watch of the API server's by the caller itself, so that who may watch, from which
// version, and what there is at first, is the API server's to say. From the version to which the client has everything, it goes on as a
// follower of the kind's shared watch, if there is one for it; when that is lost it becomes a watch of its own again.
type aWatch struct {
	*call
	form accepted
	out  *outbound
	// view is the same for watches that show the same event as the same.
	view  string
	until time.Time
	// bookmarks tells whether the client takes them.
	bookmarks bool
	// settled tells whether position says what the client has; while it is sent what there is at first, that cannot be told.
	settled  bool
	position uint64
	// begun tells whether the answer has begun.
	begun bool
}

// watch answers a watch.
func (q *call) watch() {
	form, p := accept(q.r)
	if p != nil || form.yaml {
		q.refuse(newProblem(http.StatusNotAcceptable, "NotAcceptable", "", "a watch is answered in %s only", typeJSON))
		return
	}
	if q.scattered() {
		q.refuse(newProblem(http.StatusUnprocessableEntity, "Invalid", "watch", "a watch across tenants is not served to you: give a tenant by its name as the namespace"))
		return
	}
	ctx, cancel := q.whileKnown()
	defer cancel()
	w := &aWatch{call: q, form: form, out: newOutbound(q.target, q.id), view: fingerprint(q.target.as, q.id.Tenants)}
	seconds, err := strconv.ParseInt(q.query.Get("timeoutSeconds"), 10, 64)
	if err != nil {
		q.failed(err) // target.query has set it
		return
	}
	w.until = time.Now().Add(time.Duration(seconds) * time.Second)
	if w.position, w.settled = fanout.Version(q.query.Get("resourceVersion")); q.query.Get("sendInitialEvents") == "true" {
		w.settled = false
	}
	w.bookmarks = q.query.Get("allowWatchBookmarks") == "true"
	if err := w.run(ctx); err != nil && ctx.Err() == nil {
		q.config.Log.Info("a watch ended", "user", q.id.User, "resource", q.target.resource(), "error", err)
	}
}

// run hands on events until either side ends.
func (w *aWatch) run(ctx context.Context) error {
	hub, done := w.hub() //nolint:contextcheck // it is others' too, and outlasts this request
	defer done()
	for {
		follower, err := w.own(ctx, hub)
		if follower == nil || err != nil {
			return err
		}
		if err = w.follow(ctx, follower); !errors.Is(err, fanout.ErrLost) {
			return err
		}
		left := int64(time.Until(w.until) / time.Second)
		if left <= 0 {
			return nil
		}
		for _, parameter := range []string{"sendInitialEvents", "resourceVersionMatch"} {
			w.query.Del(parameter)
		}
		w.query.Set("resourceVersion", strconv.FormatUint(w.position, 10))
		w.query.Set("timeoutSeconds", strconv.FormatInt(left, 10))
	}
}

// own hands on a watch of the caller's own until it ends, or until there is a follower to go on with.
func (w *aWatch) own(ctx context.Context, hub *fanout.Hub) (*fanout.Follower, error) {
	query := w.query
	if hub != nil {
		query = maps.Clone(query)
		query.Set("allowWatchBookmarks", "true")
	}
	request, err := w.upstream.request(ctx, w.id, http.MethodGet, w.target.path(), query, nil)
	if err != nil {
		return nil, w.fail(err)
	}
	request.Header.Set("Accept", w.form.upstream)
	request.Header.Set("User-Agent", w.r.UserAgent())
	response, err := w.upstream.objects.RoundTrip(request)
	if err != nil {
		return nil, w.fail(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, w.fail(refusalOf(response, w.out))
	}
	if err := w.begin(response.Header); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(response.Body)
	for {
		if f := w.join(hub); f != nil {
			return f, nil
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			if errors.Is(err, io.EOF) {
				return nil, nil
			}
			return nil, err
		}
		event, err := fanout.Read(raw)
		if err != nil {
			return nil, err
		}
		if err := w.hand(event); err != nil {
			return nil, err
		}
	}
}

// join is a place in the shared watch from where the client is; nil while there is none.
func (w *aWatch) join(hub *fanout.Hub) *fanout.Follower {
	if hub == nil || !w.settled {
		return nil
	}
	f, ok := hub.Follow(w.target.namespace, w.position)
	if !ok {
		return nil
	}
	return f
}

// follow hands on the shared watch, while the caller may.
func (w *aWatch) follow(ctx context.Context, follower *fanout.Follower) error {
	defer follower.Close()
	ctx, cancel := context.WithDeadline(ctx, w.until)
	defer cancel()
	defer w.whilePermitted(cancel)() //nolint:contextcheck // the check is others' too
	for {
		event, err := follower.Next(ctx)
		switch {
		case errors.Is(err, fanout.ErrSlow):
			return errors.Join(err, w.tell(newProblem(http.StatusGone, "Expired", "", "you read more slowly than there is news: list again, and watch from there")))
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := w.hand(event); err != nil {
			return err
		}
	}
}

// begin begins the answer.
func (w *aWatch) begin(header http.Header) error {
	if w.begun {
		return nil
	}
	w.begun = true
	w.headers(header, w.out)
	w.w.Header().Set("Content-Type", typeJSON)
	return http.NewResponseController(w.w).Flush()
}

// hand hands on one event.
func (w *aWatch) hand(event *fanout.Event) error {
	w.advance(event)
	if event.Type == fanout.Bookmark && !w.bookmarks {
		return nil
	}
	text, err := event.Told(w.view, w.out.event)
	if err != nil {
		return err
	}
	return w.send(text)
}

// advance notes what the client has with an event.
func (w *aWatch) advance(event *fanout.Event) {
	if event.Type == fanout.Bookmark && (event.EndsInitial || w.query.Get("sendInitialEvents") != "true") {
		w.settled = true
	}
	if event.Version > 0 && event.Version > w.position {
		w.position = event.Version
	}
}

func (w *aWatch) send(text []byte) error {
	control := http.NewResponseController(w.w)
	if err := control.SetWriteDeadline(time.Now().Add(slowest)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := w.w.Write(text); err != nil {
		return err
	}
	return control.Flush()
}

// fail ends a watch by an error: by the answer's status, or an event of an answer that has begun.
func (w *aWatch) fail(err error) error {
	refused := new(refusal)
	switch is := errors.As(err, &refused); {
	case is && !w.begun:
		writeStatus(w.w, w.r, refused.status)
		return nil
	case is:
		return w.tellStatus(refused.status)
	case !w.begun:
		w.failed(err)
		return nil
	}
	return err
}

// tell says an error as an event.
func (w *aWatch) tell(p *problem) error { return w.tellStatus(p.status()) }

func (w *aWatch) tellStatus(status any) error {
	text, err := json.Marshal(map[string]any{"type": fanout.Error, "object": status})
	if err != nil {
		return err
	}
	return w.send(append(text, '\n'))
}

// event turns one event of a watch, with the newline that ends it.
func (o *outbound) event(raw []byte) ([]byte, error) {
	var event map[string]any
	if err := utiljson.Unmarshal(raw, &event); err != nil {
		return nil, err
	}
	object, ok := event["object"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("an event of type %v has no object", event["type"])
	}
	o.turn(object)
	encoded, err := o.encode(event)
	return append(encoded, '\n'), err
}
