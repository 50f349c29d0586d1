package agent

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Watch watches kinds of objects, one of each is given, until ctx ends, and returns once everything has been seen. It waits for an API
// server that is not there yet. onChange is called after each change, but for updates of which same, if there is one, says that they
// change nothing.
func Watch(ctx context.Context, c cache.Cache, kinds []client.Object, onChange func(), same func(before, after any) bool) error {
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { onChange() },
		UpdateFunc: func(before, after any) {
			if same == nil || !same(before, after) {
				onChange()
			}
		},
		DeleteFunc: func(any) { onChange() },
	}
	for _, kind := range kinds {
		informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	failed := make(chan error, 1)
	go func() { failed <- c.Start(ctx) }()
	if !c.WaitForCacheSync(ctx) {
		select {
		case err := <-failed:
			return fmt.Errorf("cache of API objects: %w", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
