package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// quarantines are for how long this process has known of objects that they were released. What those say themselves is of a clock that may have
// been set since, and what is had again too early is somebody else's on a node that is behind; so a quarantine begins anew with the process.
type quarantines struct {
	// now must not jump: it is only compared with itself.
	now func() time.Time

	mu sync.Mutex
	// first is when each was first seen released, by its name.
	first map[string]seen
}

// seen is the identity of an object and a time.
type seen struct {
	uid types.UID
	at  time.Time
}

func newQuarantines(now func() time.Time) *quarantines {
	return &quarantines{now: now, first: map[string]seen{}}
}

// passed is for how long an object, which is released, has been known to be.
func (q *quarantines) passed(o client.Object) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	first, ok := q.first[o.GetName()]
	if !ok || first.uid != o.GetUID() {
		first = seen{o.GetUID(), now}
		q.first[o.GetName()] = first
	}
	return now.Sub(first.at)
}

// forget is for what is gone.
func (q *quarantines) forget(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.first, name)
}
