package fanout

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
)

// Upstream is where the events of a kind come from.
type Upstream struct {
	// Version is the kind's present version.
	Version func(ctx context.Context) (uint64, error)
	// Watch is the stream of the events after a version, with bookmarks, as JSON.
	Watch func(ctx context.Context, after uint64) (io.ReadCloser, error)
}

const (
	// shortest and longest are how long a hub waits after a failure.
	shortest, longest = 250 * time.Millisecond, 30 * time.Second
	// tries is how often it tries to go on where it was before its followers are lost.
	tries = 3
)

// Hub keeps a Log as a kind's events come.
type Hub struct {
	*Log
	upstream Upstream
	// Trouble is told what went wrong.
	trouble func(error)
}

// NewHub makes a Hub with a log of that many bytes. trouble is told what goes wrong.
func NewHub(upstream Upstream, capacity int, trouble func(error)) *Hub {
	return &Hub{NewLog(capacity), upstream, trouble}
}

// Run keeps the log until the context ends.
func (h *Hub) Run(ctx context.Context) {
	defer h.End()
	wait := shortest
	for ctx.Err() == nil {
		version, err := h.upstream.Version(ctx)
		if err == nil {
			h.Begin(version)
			wait = shortest
			err = h.keep(ctx)
			h.End()
		}
		if ctx.Err() != nil {
			return
		}
		h.trouble(err)
		pause(ctx, wait)
		wait = min(2*wait, longest)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// keep goes on from where the log is, by one watch after the other, until it cannot.
func (h *Hub) keep(ctx context.Context) error {
	for failed := 0; ; {
		events, err := h.upstream.Watch(ctx, h.Last())
		if err == nil {
			var some bool
			some, err = h.read(events)
			if err = errors.Join(err, events.Close()); err == nil {
				failed = 0
				if !some {
					pause(ctx, shortest)
				}
				continue
			}
			if some {
				failed = 0
			}
		}
		failed++
		if ended := new(endError); ctx.Err() != nil || errors.As(err, &ended) || failed >= tries {
			return err
		}
		pause(ctx, shortest<<failed)
	}
}

// endError means that a watch cannot go on from where it was.
type endError struct{ said json.RawMessage }

// Error implements error.
func (e *endError) Error() string { return "the API server ended the watch: " + string(e.said) }

// read puts the events of a stream into the log until it ends. some tells whether there were any.
func (h *Hub) read(events io.Reader) (some bool, err error) {
	decoder := json.NewDecoder(events)
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			if errors.Is(err, io.EOF) {
				return some, nil
			}
			return some, err
		}
		e, err := Read(raw)
		if err != nil {
			return some, err
		}
		if e.Type == Error || e.Version == 0 || !h.Append(e) {
			return some, &endError{raw}
		}
		some = true
	}
}

// Hubs are the hubs that are in use, by what they carry.
type Hubs struct {
	// Make makes the hub of a key.
	Make func(key string) *Hub
	// Linger is how long a hub stays that nobody uses.
	Linger time.Duration

	mu   sync.Mutex
	hubs map[string]*usedHub
}

type usedHub struct {
	*Hub
	users int
	stop  context.CancelFunc
	// idle stops a hub that nobody uses; nil while somebody does.
	idle *time.Timer
}

// Use gives the hub of a key, which runs from then on, and what to call when it is not needed any more.
func (h *Hubs) Use(key string) (hub *Hub, done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	used, ok := h.hubs[key]
	if !ok {
		ctx, cancel := context.WithCancel(context.Background())
		used = &usedHub{Hub: h.Make(key), stop: cancel}
		if h.hubs == nil {
			h.hubs = map[string]*usedHub{}
		}
		h.hubs[key] = used
		go used.Run(ctx)
	}
	if used.idle != nil {
		used.idle.Stop()
		used.idle = nil
	}
	used.users++
	return used.Hub, func() { h.leave(key, used) }
}

func (h *Hubs) leave(key string, used *usedHub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if used.users--; used.users > 0 {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(h.Linger, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if used.idle == timer && h.hubs[key] == used {
			delete(h.hubs, key)
			used.stop()
		}
	})
	used.idle = timer
}

// Stop stops all hubs.
func (h *Hubs) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, used := range h.hubs {
		if used.idle != nil {
			used.idle.Stop()
		}
		used.stop()
		delete(h.hubs, key)
	}
}
