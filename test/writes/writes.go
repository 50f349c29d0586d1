// Package writes stands between a controller and the API server in tests: it counts what the controller writes, and lets
// it die at any write, before or after the server has done it.
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

// Point is when a controller dies.
type Point struct {
	// Write is the number of the write, from 1. 0 means never.
	Write int
	// After tells whether the server has done the write already.
	After bool
}

// Log counts the writes that went through its clients.
type Log struct {
	mu    sync.Mutex
	count int
	die   Point
	dead  bool
	// lines says what was written, for people.
	lines []string
}

// New makes a log whose clients die at a point: they do nothing more from then on.
func New(die Point) *Log { return &Log{die: die} }

// Count is how many writes there were, those included that did nothing because of the death.
func (l *Log) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Dead tells whether the point was reached.
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
	if l.dead {
		l.mu.Unlock()
		return ErrDied
	}
	l.count++
	l.lines = append(l.lines, line)
	dies := l.count == l.die.Write
	l.dead = dies
	l.mu.Unlock()
	if dies && !l.die.After {
		return ErrDied
	}
	err := do()
	if dies {
		return ErrDied
	}
	return err
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

func (c *logged) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return c.log.write(line("create", obj), func() error { return c.Client.Create(ctx, obj, opts...) })
}

func (c *logged) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return c.log.write(line("update", obj), func() error { return c.Client.Update(ctx, obj, opts...) })
}

func (c *logged) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.log.write(line("patch", obj), func() error { return c.Client.Patch(ctx, obj, patch, opts...) })
}

func (c *logged) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return c.log.write("apply", func() error { return c.Client.Apply(ctx, obj, opts...) })
}

func (c *logged) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return c.log.write(line("delete", obj), func() error { return c.Client.Delete(ctx, obj, opts...) })
}

func (c *logged) Status() client.SubResourceWriter {
	return &loggedStatus{SubResourceWriter: c.Client.Status(), log: c.log}
}

type loggedStatus struct {
	client.SubResourceWriter
	log *Log
}

func (s *loggedStatus) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.log.write(line("update status of", obj), func() error { return s.SubResourceWriter.Update(ctx, obj, opts...) })
}

func (s *loggedStatus) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.log.write(line("patch status of", obj), func() error { return s.SubResourceWriter.Patch(ctx, obj, patch, opts...) })
}
