package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const (
	// recheck is how often a watch asks again whether its caller is still who it was, with the same tenants.
	recheck = 15 * time.Second
	// slowest is how long a client may take to read what it is sent.
	slowest = 30 * time.Second
)

// watch hands on the API server's watch.
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
	request, err := q.upstream.request(ctx, q.id, http.MethodGet, q.target.path(), q.query, nil)
	if err != nil {
		q.failed(err)
		return
	}
	request.Header.Set("Accept", form.upstream)
	request.Header.Set("User-Agent", q.r.UserAgent())
	response, err := q.upstream.objects.RoundTrip(request)
	if err != nil {
		q.failed(err)
		return
	}
	defer response.Body.Close()
	out := newOutbound(q.target, q.id)
	if response.StatusCode != http.StatusOK {
		refused := new(refusal)
		if err := refusalOf(response, out); !errors.As(err, &refused) {
			q.failed(err)
			return
		}
		writeStatus(q.w, q.r, refused.status)
		return
	}
	q.headers(response.Header, out)
	q.w.Header().Set("Content-Type", typeJSON)
	if err := q.relay(response.Body, out); err != nil && ctx.Err() == nil {
		q.config.Log.Info("a watch ended", "user", q.id.Name, "resource", q.target.resource(), "error", err)
	}
}

// relay writes each event as it comes, until either side ends.
func (q *call) relay(events io.Reader, out *outbound) error {
	control := http.NewResponseController(q.w)
	if err := control.Flush(); err != nil {
		return err
	}
	decoder := json.NewDecoder(events)
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		event, err := out.event(raw)
		if err != nil {
			return err
		}
		if err := control.SetWriteDeadline(time.Now().Add(slowest)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if _, err := q.w.Write(event); err != nil {
			return err
		}
		if err := control.Flush(); err != nil {
			return err
		}
	}
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
