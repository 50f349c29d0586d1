package daemon

import (
	"context"
	"fmt"
	"os"

	"github.com/fsnotify/fsnotify"
)

// watchQueue does detachments that the plugin queues although the daemon runs: it connected just before the socket was there,
// or got no answer in time.
func (d *daemon) watchQueue(ctx context.Context) error {
	if err := os.MkdirAll(d.options.QueueDir, 0o700); err != nil {
		return fmt.Errorf("--queue-dir: %w", err)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch --queue-dir: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(d.options.QueueDir); err != nil {
		return fmt.Errorf("watch --queue-dir: %w", err)
	}
	for {
		if err := d.attachments.Replay(ctx, d.options.QueueDir); err != nil && ctx.Err() == nil {
			d.log.Error("replay queued detachments", "error", err)
		}
		if err := d.awaitQueued(ctx, watcher); err != nil {
			return err
		}
	}
}

// awaitQueued returns when an entry was put into the queue (one is written beside it and renamed), or may have been: the watcher
// failed. That an entry is gone is the daemon's own doing.
func (d *daemon) awaitQueued(ctx context.Context, watcher *fsnotify.Watcher) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event := <-watcher.Events:
			if event.Has(fsnotify.Create) {
				return nil
			}
		case err := <-watcher.Errors:
			d.log.Warn("watch --queue-dir", "error", err)
			return nil
		}
	}
}
