package fanout

import (
	"context"
	"errors"
	"sort"
	"sync"
)

var (
	// ErrLost is for a follower whose log began anew: what was between is not known here. It can go on by a watch of its own.
	ErrLost = errors.New("the shared watch began anew")
	// ErrSlow is for a follower that did not take events while the log still had them.
	ErrSlow = errors.New("events came faster than they were read")
)

// Log keeps the newest events of a kind.
type Log struct {
	mu sync.Mutex
	// capacity is how many bytes of events are kept. The newest event is kept whatever its size.
	capacity, bytes int
	// life counts how often the log began anew; it takes followers while it is live.
	life int
	live bool
	// base is the version after which every event was put in, last the newest version that is known.
	base, last uint64
	// dropped is the version of the newest event that had to make room.
	dropped uint64
	// topics are the events by namespace, and all of them under "".
	topics   map[string]*topic
	bookmark *Event
}

// topic is the events of a namespace, the oldest first.
type topic struct {
	events    []*Event
	followers int
	dropped   uint64
	// changed is closed when there is something new.
	changed chan struct{}
}

// NewLog makes a Log that keeps that many bytes. It takes followers from the first Begin on.
func NewLog(capacity int) *Log {
	return &Log{capacity: capacity, topics: map[string]*topic{}}
}

// Begin begins anew after a version. All followers are lost.
func (l *Log) Begin(version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	l.live, l.base, l.last, l.dropped = true, version, version, version
}

// End takes no followers any more, until Begin. All that there are are lost.
func (l *Log) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}

func (l *Log) end() {
	for _, t := range l.topics {
		t.wake()
	}
	l.live, l.bytes, l.bookmark, l.topics = false, 0, nil, map[string]*topic{}
	l.life++
}

// Last is the newest version that is known.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Append puts in the next event, or a bookmark. It refuses one that is not newer than those before.
func (l *Log) Append(e *Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Type == Bookmark {
		if e.Version < l.last {
			return false
		}
		l.last, l.bookmark = e.Version, e
		for _, t := range l.topics {
			t.wake()
		}
		return true
	}
	if e.Version <= l.last {
		return false
	}
	l.last = e.Version
	l.topic("").add(e)
	if e.Namespace != "" {
		l.topic(e.Namespace).add(e)
	}
	l.bytes += size(e)
	for l.bytes > l.capacity && len(l.topics[""].events) > 1 {
		l.drop()
	}
	return true
}

// size is what an event takes: its text, twice when it has been told, and what is around it.
func size(e *Event) int { return 2*len(e.Raw) + 256 }

// drop makes room by the oldest event.
func (l *Log) drop() {
	oldest := l.topics[""].events[0]
	l.bytes -= size(oldest)
	l.dropped = oldest.Version
	l.topics[""].dropOldest()
	if t := l.topics[oldest.Namespace]; oldest.Namespace != "" {
		t.dropOldest()
		l.forget(oldest.Namespace, t)
	}
}

// topic is the one of a namespace. A new one may have had events that were dropped.
func (l *Log) topic(namespace string) *topic {
	t, ok := l.topics[namespace]
	if !ok {
		t = &topic{dropped: l.dropped, changed: make(chan struct{})}
		l.topics[namespace] = t
	}
	return t
}

// forget forgets a topic that nobody needs.
func (l *Log) forget(namespace string, t *topic) {
	if t.followers == 0 && len(t.events) == 0 && l.topics[namespace] == t {
		delete(l.topics, namespace)
	}
}

func (t *topic) add(e *Event) {
	t.events = append(t.events, e)
	t.wake()
}

func (t *topic) wake() {
	if t.followers > 0 {
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

func (t *topic) dropOldest() {
	t.dropped = t.events[0].Version
	t.events[0] = nil
	t.events = t.events[1:]
}

// Follower is a place in a Log.
type Follower struct {
	log       *Log
	topic     *topic
	namespace string
	life      int
	after     uint64
}

// Follow follows the events of a namespace, or of all with "", after a version. It says no when the log does not have all of them.
func (l *Log) Follow(namespace string, after uint64) (*Follower, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.live || after < l.base {
		return nil, false
	}
	t := l.topic(namespace)
	if after < t.dropped {
		l.forget(namespace, t)
		return nil, false
	}
	t.followers++
	return &Follower{log: l, topic: t, namespace: namespace, life: l.life, after: after}, true
}

// Close ends following.
func (f *Follower) Close() {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	f.topic.followers--
	f.log.forget(f.namespace, f.topic)
}

// Next waits for the next event or bookmark. It fails with ErrLost, with ErrSlow, or as the context does.
func (f *Follower) Next(ctx context.Context) (*Event, error) {
	for {
		e, changed, err := f.step()
		if e != nil || err != nil {
			return e, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}

// step is the next event if there is one, or what to wait for.
func (f *Follower) step() (*Event, <-chan struct{}, error) {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	switch {
	case f.life != f.log.life:
		return nil, nil, ErrLost
	case f.after < f.topic.dropped:
		return nil, nil, ErrSlow
	}
	events := f.topic.events
	i := sort.Search(len(events), func(i int) bool { return events[i].Version > f.after })
	if i < len(events) {
		f.after = events[i].Version
		return events[i], nil, nil
	}
	if b := f.log.bookmark; b != nil && b.Version > f.after {
		f.after = b.Version
		return b, nil, nil
	}
	return nil, f.topic.changed, nil
}
