package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// awaiting waits for several objects at a time.
type awaiting struct {
	// timeout for all together; 0 is none.
	timeout time.Duration
	// wish is what is waited for, after "is not": "Ready", "gone".
	wish string
	// done is called for each object when it has come.
	done func(*target)
	// progress takes lines that say what is waited for; nil for none.
	progress io.Writer
	// goneIsFailure ends the waiting for an object that is deleted meanwhile.
	goneIsFailure bool
}

// progress is where progress is shown: standard error, when people look at it.
func (c *connection) progress() io.Writer {
	if c.watched {
		return c.streams.ErrOut
	}
	return nil
}

// wait returns when every target has been judged done, or with an error for each that has not.
func (a *awaiting) wait(ctx context.Context, targets []*target, judge func(*target) judgement) error {
	waiting := ctx
	if a.timeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	var lock sync.Mutex
	errs := make([]error, len(targets))
	var group sync.WaitGroup
	for i, t := range targets {
		group.Go(func() {
			last := ""
			judged := func(o *unstructured.Unstructured) bool {
				done, why := judge(t)(o)
				lock.Lock()
				defer lock.Unlock()
				switch {
				case done:
					a.done(t)
				case why != last && a.progress != nil:
					fmt.Fprintf(a.progress, "waiting for %s: %s\n", t, why)
				}
				last = why
				return done
			}
			err := a.watch(waiting, t, judged)
			switch {
			case err == nil || ctx.Err() != nil:
				errs[i] = ctx.Err()
			case errors.Is(err, errGone):
				errs[i] = fmt.Errorf("%s was deleted", t)
			case waiting.Err() != nil:
				errs[i] = fmt.Errorf("%s is not %s after %v: %s", t, a.wish, a.timeout, last)
			default:
				errs[i] = err
			}
		})
	}
	group.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(errs...)
}

var errGone = errors.New("deleted")

// watch shows a target to judged at first and at each change until it says that this is all.
func (a *awaiting) watch(ctx context.Context, t *target, judged func(*unstructured.Unstructured) bool) error {
	if _, err := t.client.Get(ctx, t.name, metav1.GetOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	only := fields.OneTermEqualSelector("metadata.name", t.name).String()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return t.client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return t.client.Watch(ctx, o)
		},
	}
	absent := func() (bool, error) {
		if judged(nil) {
			return true, nil
		}
		if a.goneIsFailure {
			return false, errGone
		}
		return false, nil
	}
	_, err := watchtools.UntilWithSync(ctx, source, &unstructured.Unstructured{},
		func(store cache.Store) (bool, error) {
			if len(store.List()) == 0 {
				return absent()
			}
			return false, nil
		},
		func(event watch.Event) (bool, error) {
			if event.Type == watch.Deleted {
				return absent()
			}
			o, ok := event.Object.(*unstructured.Unstructured)
			return ok && judged(o), nil
		})
	return err
}
