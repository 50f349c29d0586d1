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
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event := <-watcher.Events:
			if !event.Has(fsnotify.Create) && !event.Has(fsnotify.Rename) {
				continue
			}
		case err := <-watcher.Errors:
			d.log.Warn("watch --queue-dir", "error", err)
		}
	}
}
