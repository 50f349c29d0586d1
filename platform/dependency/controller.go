package dependency

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kit "github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/platform/dependency/graph"
)

// FieldOwner is the field manager of what the controller writes.
const FieldOwner = "dependency.mnicloud.jp/controller"

// Config is what the owner of the cloud decides.
type Config struct {
	// Webhooks serves the webhook that refuses cycles; nil when another process does.
	Webhooks webhook.Server
	// Workers is how many objects are looked at at once. 0 means 4.
	Workers int
}

// settle is how long back references wait for more of them: many objects that come at once are told of in one write.
const settle = time.Second

// item is something to look at: an object, or only what names it.
type item struct {
	graph.Key
	backReferences bool
}

type controller struct {
	state   *state
	watcher *watcher
	client  dynamic.Interface
	queue   workqueue.TypedRateLimitingInterface[item]
	workers int
	log     *slog.Logger
}

// SetupWithManager adds the controller and its webhook to the manager.
func SetupWithManager(mgr ctrl.Manager, config Config) error {
	if config.Workers <= 0 {
		config.Workers = 4
	}
	c := &controller{state: newState(), workers: config.Workers, log: slog.Default().With("controller", "dependency")}
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[item](5*time.Millisecond, time.Minute))
	var err error
	if c.watcher, err = newWatcher(mgr.GetConfig(), c.state, c.log, c.touch); err != nil {
		return err
	}
	c.client = c.watcher.client
	if config.Webhooks != nil {
		config.Webhooks.Register(Path, &admission.Webhook{Handler: &refuser{c.state, c.watcher}})
	}
	if err := mgr.Add(c.watcher); err != nil {
		return err
	}
	return mgr.Add(c)
}

// touch asks for objects to be looked at.
func (c *controller) touch(keys ...graph.Key) {
	for _, key := range keys {
		c.queue.Add(item{key, false})
		c.queue.AddAfter(item{key, true}, settle)
	}
}

// Start works until the context ends.
func (c *controller) Start(ctx context.Context) error {
	var group sync.WaitGroup
	for range c.workers {
		group.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	group.Wait()
	return nil
}

func (c *controller) next(ctx context.Context) bool {
	i, down := c.queue.Get()
	if down {
		return false
	}
	defer c.queue.Done(i)
	var err error
	if i.backReferences {
		err = c.tellBackReferences(ctx, i.Key)
	} else {
		err = c.look(ctx, i.Key)
	}
	switch {
	case err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil:
		c.queue.Forget(i)
	case apierrors.IsConflict(err):
		// The newer version is on its way and brings it back; should it have come before, this does.
		c.queue.AddRateLimited(i)
	default:
		c.log.Error("look after what depends on what", "object", i.Key.String(), "namespace", i.Namespace, "error", err)
		c.queue.AddRateLimited(i)
	}
	return true
}

// look brings the guard of an object, and what it is told of its dependencies, to what they should be.
func (c *controller) look(ctx context.Context, key graph.Key) error {
	d, ok := c.state.decide(key)
	if !ok {
		return nil
	}
	o := d.object
	if d.guard {
		if err := c.finalizers(ctx, o, append(slices.Clone(o.Finalizers), kit.Guard)); err != nil {
			return fmt.Errorf("guard it: %w", err)
		}
	}
	// As long as some objects are not known, one of them may depend on it.
	if d.unguard && c.watcher.settled() {
		rest := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == kit.Guard })
		if err := c.finalizers(ctx, o, rest); err != nil {
			return fmt.Errorf("take the guard away: %w", err)
		}
	}
	if d.tell {
		return c.status(ctx, o, map[string]any{"dependencies": fields(d.seen)})
	}
	return nil
}

func (c *controller) tellBackReferences(ctx context.Context, key graph.Key) error {
	if !c.watcher.settled() {
		c.queue.AddAfter(item{key, true}, settle)
		return nil
	}
	o, dependents, ok := c.state.backReferences(key)
	if !ok {
		return nil
	}
	var value any
	if len(dependents) > 0 {
		value = dependents
	}
	return c.status(ctx, o, map[string]any{"dependents": value})
}

// fields are those of a merge patch: what is not to be is null.
func fields(s *kit.Status) any {
	if s == nil {
		return nil
	}
	out := map[string]any{"observedGeneration": s.ObservedGeneration, "met": s.Met, "reason": nil, "message": nil}
	if s.Reason != "" {
		out["reason"], out["message"] = s.Reason, s.Message
	}
	return out
}

// finalizers replaces an object's finalizers, if it is as it was.
func (c *controller) finalizers(ctx context.Context, o *object, finalizers []string) error {
	return c.patch(ctx, o, map[string]any{"metadata": map[string]any{"finalizers": finalizers, "resourceVersion": o.ResourceVersion}})
}

// status changes fields of the status of the object with the UID, whatever else has changed.
func (c *controller) status(ctx context.Context, o *object, changes map[string]any) error {
	var subresources []string
	if o.kind.status {
		subresources = []string{"status"}
	}
	return c.patch(ctx, o, map[string]any{"metadata": map[string]any{"uid": o.UID}, "status": changes}, subresources...)
}

func (c *controller) patch(ctx context.Context, o *object, content map[string]any, subresources ...string) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	_, err = c.client.Resource(o.kind.resource).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, data,
		metav1.PatchOptions{FieldManager: FieldOwner}, subresources...)
	return err
}
