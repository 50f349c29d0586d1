// Package writes stands between a controller and the API server in tests: it counts what the controller writes, and lets
// it die at any write.
package writes

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrDied is what a controller gets that dies at a write.
var ErrDied = errors.New("died at this write")

// Log counts the writes that went through its clients.
type Log struct {
	mu    sync.Mutex
	count int
	die   int
	dead  bool
	// lines says what was written, for people.
	lines []string
}

// New makes a log whose clients die before the given write (from 1; 0 is never): they write nothing more from then on. To die
// after a write is to die before the next.
func New(die int) *Log { return &Log{die: die} }

// Dead tells whether the controller has died.
func (l *Log) Dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// Lines says what was written, in order.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// write does one write, unless the controller is dead.
func (l *Log) write(line string, do func() error) error {
	l.mu.Lock()
	l.count++
	l.lines = append(l.lines, line)
	l.dead = l.dead || l.count == l.die
	dead := l.dead
	l.mu.Unlock()
	if dead {
		return ErrDied
	}
	return do()
}

// Client wraps a client.
func (l *Log) Client(c client.Client) client.Client { return &logged{Client: c, log: l} }

type logged struct {
	client.Client
	log *Log
}

func line(verb string, obj client.Object) string {
	return fmt.Sprintf("%s %T %s", verb, obj, client.ObjectKeyFromObject(obj))
}

// Create counts and creates.
func (c *logged) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return c.log.write(line("create", obj), func() error { return c.Client.Create(ctx, obj, opts...) })
}

// Update counts and updates.
func (c *logged) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return c.log.write(line("update", obj), func() error { return c.Client.Update(ctx, obj, opts...) })
}

// Patch counts and patches.
func (c *logged) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.log.write(line("patch", obj), func() error { return c.Client.Patch(ctx, obj, patch, opts...) })
}

// Apply counts and applies.
func (c *logged) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	what := "apply"
	if o, ok := obj.(client.Object); ok {
		what = fmt.Sprintf("apply %s %s", o.GetObjectKind().GroupVersionKind().Kind, client.ObjectKeyFromObject(o))
	}
	return c.log.write(what, func() error { return c.Client.Apply(ctx, obj, opts...) })
}

// Delete counts and deletes.
func (c *logged) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return c.log.write(line("delete", obj), func() error { return c.Client.Delete(ctx, obj, opts...) })
}

// Status is a client whose writes are counted too.
func (c *logged) Status() client.SubResourceWriter {
	return &loggedStatus{SubResourceWriter: c.Client.Status(), log: c.log}
}

type loggedStatus struct {
	client.SubResourceWriter
	log *Log
}

// Update counts and updates the status.
func (s *loggedStatus) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.log.write(line("update status of", obj), func() error { return s.SubResourceWriter.Update(ctx, obj, opts...) })
}

// Patch counts and patches the status.
func (s *loggedStatus) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.log.write(line("patch status of", obj), func() error { return s.SubResourceWriter.Patch(ctx, obj, patch, opts...) })
}
