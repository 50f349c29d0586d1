package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// counting counts the writes of a client, and can fail them.
type counting struct {
	n atomic.Int64
	// crash, when set, decides by the number of the write (from 1) whether it fails, and whether the API server carries it
	// out all the same.
	crash func(n int64) crash
	mu    sync.Mutex
	what  string
}

// crash is what becomes of a write.
type crash int

const (
	lives  crash = iota
	before       // it never reaches the API server
	after        // the API server carries it out, the writer never learns it
)

var errCrash = errors.New("crash")

func (w *counting) count() int64 { return w.n.Load() }

func (w *counting) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.what
}

func (w *counting) do(what string, o client.Object, write func() error) error {
	n := w.n.Add(1)
	w.mu.Lock()
	w.what = fmt.Sprintf("%s %T %s", what, o, o.GetName())
	w.mu.Unlock()
	how := lives
	if w.crash != nil {
		how = w.crash(n)
	}
	if how == before {
		return errCrash
	}
	if err := write(); err != nil || how == lives {
		return err
	}
	return errCrash
}

func (w *counting) around(c client.Client) client.Client { return countingClient{c, w} }

type countingClient struct {
	client.Client
	w *counting
}

func (c countingClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.w.do("create", o, func() error { return c.Client.Create(ctx, o, opts...) })
}

func (c countingClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return c.w.do("delete", o, func() error { return c.Client.Delete(ctx, o, opts...) })
}

func (c countingClient) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return c.w.do("patch", o, func() error { return c.Client.Patch(ctx, o, p, opts...) })
}

func (c countingClient) Status() client.SubResourceWriter {
	return countingStatus{c.Client.Status(), c.w}
}

type countingStatus struct {
	client.SubResourceWriter
	w *counting
}

func (c countingStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	return c.w.do("patch the status of", o, func() error { return c.SubResourceWriter.Patch(ctx, o, p, opts...) })
}
