package fanout

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
)

// Type of an event, as Kubernetes' API has it.
type Type string

// Types of events. All others are about an object that was ADDED, MODIFIED or DELETED.
const (
	Bookmark Type = "BOOKMARK"
	Error    Type = "ERROR"
)

// initialEventsEnd stands on the bookmark that ends the first events of a watch that asked for them (sendInitialEvents).
const initialEventsEnd = "k8s.io/initial-events-end"

// Event of a watch.
type Event struct {
	Type Type
	// Version is the resource version that the kind had after the event.
	Version uint64
	// Namespace of the object.
	Namespace string
	// EndsInitial tells of a bookmark that all that there was has been sent before it.
	EndsInitial bool
	// Raw is the event as the API server sent it.
	Raw json.RawMessage

	told atomic.Pointer[telling]
}

// telling is an event as a view of it shows it.
type telling struct {
	view string
	text []byte
}

// Told is the event as a view shows it, made by tell. Followers with the same view share what the last of them made.
func (e *Event) Told(view string, tell func(raw []byte) ([]byte, error)) ([]byte, error) {
	if t := e.told.Load(); t != nil && t.view == view {
		return t.text, nil
	}
	text, err := tell(e.Raw)
	if err == nil {
		e.told.Store(&telling{view, text})
	}
	return text, err
}

// Read reads of an event what must be known to hand it on. Of an ERROR and of an object without a version it is the type only.
func Read(raw json.RawMessage) (*Event, error) {
	var event struct {
		Type   Type `json:"type"`
		Object *struct {
			Metadata struct {
				Namespace       string            `json:"namespace"`
				ResourceVersion string            `json:"resourceVersion"`
				Annotations     map[string]string `json:"annotations"`
			} `json:"metadata"`
		} `json:"object"`
	}
	if err := json.Unmarshal(raw, &event); err != nil {
		return nil, err
	}
	if event.Object == nil || event.Type == "" {
		return nil, fmt.Errorf("an event of type %q has no object", event.Type)
	}
	e := &Event{Type: event.Type, Namespace: event.Object.Metadata.Namespace, Raw: raw}
	e.EndsInitial = e.Type == Bookmark && event.Object.Metadata.Annotations[initialEventsEnd] == "true"
	if e.Type != Error {
		e.Version, _ = Version(event.Object.Metadata.ResourceVersion)
	}
	return e, nil
}

// Version reads a resource version. "0" and "" are none: they mean any.
func Version(text string) (uint64, bool) {
	version, err := strconv.ParseUint(text, 10, 64)
	return version, err == nil && version > 0
}
