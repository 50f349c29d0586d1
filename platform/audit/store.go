package audit

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner is the field manager of chunks.
const fieldOwner = client.FieldOwner("audit.mnicloud.jp")

// store stores what is due, or all, a batch of each tenant, and tells how many entries were.
func (t *Trail) store(ctx context.Context, all bool) (int, error) {
	t.storing.Lock()
	defer t.storing.Unlock()
	queues, err := t.due(all)
	if err != nil {
		return 0, err
	}
	var stored atomic.Int64
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, q := range queues {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, storeTimeout)
			defer cancel()
			if err := t.storeBatch(ctx, q); err != nil {
				return fmt.Errorf("tenant %s: %w", q.batchTenant.Name, err)
			}
			stored.Add(int64(q.batch.entries))
			t.done(q)
			return nil
		})
	}
	err = group.Wait()
	return int(stored.Load()), err
}

// due are the queues with a batch.
func (t *Trail) due(all bool) ([]*queue, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.options.Now()
	var queues []*queue
	for uid, q := range t.queues {
		if q.chunk != nil && q.chunk.full(now) {
			q.chunk = nil
		}
		if q.idle() {
			delete(t.queues, uid)
			continue
		}
		if uid == "" {
			continue // places whose tenant is not known yet
		}
		if err := q.take(now, all); err != nil {
			return nil, err
		}
		if q.batch != nil {
			q.batchTenant = q.tenant
			queues = append(queues, q)
		}
	}
	return queues, nil
}

// done forgets a batch that is stored.
func (t *Trail) done(q *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free(q.batchTenant.UID, q.batch.entries)
	q.grown += len(q.batch.text)
	q.batch = nil
	if int64(q.grown) < t.options.Bytes/8 {
		return
	}
	select {
	case t.grown <- q.batchTenant.UID:
		q.grown = 0
	default: // the collector is busy; the next batch asks again
	}
}

// storeBatch adds a queue's batch to its chunk, or to a new one. It may be done again after any failure: the chunk is this process's
// alone, and the batch has its own place there.
func (t *Trail) storeBatch(ctx context.Context, q *queue) error {
	now := t.options.Now()
	if q.chunk == nil || q.chunk.full(now) {
		q.chunk = &chunk{name: nameOf(q.batchTenant.UID, now, t.writer), began: now}
	}
	err := t.addBatch(ctx, q)
	if apierrors.IsNotFound(err) && q.chunk.version != "" { // it was removed
		q.chunk = nil
		return t.storeBatch(ctx, q)
	}
	return err
}

func (t *Trail) addBatch(ctx context.Context, q *queue) error {
	next := q.chunk.with(q.batch)
	stored := next.render(t.options.Namespace, q.batchTenant, q.batch.text)
	if q.chunk.version == "" {
		err := t.client.Create(ctx, stored, fieldOwner)
		if err == nil {
			t.added(ctx, q, next, stored)
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make a chunk: %w", err)
		}
		// An earlier try came through whose answer did not.
		if err := t.learn(ctx, q); err != nil {
			return err
		}
	}
	err := t.patchBatch(ctx, q, stored)
	if apierrors.IsConflict(err) {
		if err = t.learn(ctx, q); err == nil {
			err = t.patchBatch(ctx, q, stored)
		}
	}
	if err != nil {
		return err
	}
	t.added(ctx, q, next, stored)
	return nil
}

// learn reads which version a chunk has.
func (t *Trail) learn(ctx context.Context, q *queue) error {
	stored := &corev1.ConfigMap{}
	if err := t.client.Get(ctx, client.ObjectKey{Namespace: t.options.Namespace, Name: q.chunk.name}, stored); err != nil {
		return fmt.Errorf("read a chunk: %w", err)
	}
	q.chunk.version = stored.ResourceVersion
	return nil
}

func (t *Trail) patchBatch(ctx context.Context, q *queue, stored *corev1.ConfigMap) error {
	patch, err := q.chunk.with(q.batch).patch(q.batch.text)
	if err != nil {
		return err
	}
	if err := t.client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		return fmt.Errorf("add to a chunk: %w", err)
	}
	return nil
}

// added notes that a batch is in its chunk, and compresses that if it is full. A chunk that is not compressed is as good.
func (t *Trail) added(ctx context.Context, q *queue, next *chunk, stored *corev1.ConfigMap) {
	next.version = stored.ResourceVersion
	q.chunk = next
	if !next.full(t.options.Now()) {
		return
	}
	q.chunk = nil
	patch, err := seal(stored)
	if err == nil {
		err = t.client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch), fieldOwner)
	}
	if err != nil {
		t.options.Log.Info("a full chunk of the audit trail was not compressed", "chunk", next.name, "error", err)
	}
}
