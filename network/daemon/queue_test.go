package daemon

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
)

func TestOnlyANewEntryOfTheQueueOrAFailedWatchBringsAReplay(t *testing.T) {
	d := &daemon{log: slog.New(slog.DiscardHandler)}
	watcher := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
	await := func() <-chan error {
		returned := make(chan error, 1)
		go func() { returned <- d.awaitQueued(t.Context(), watcher) }()
		return returned
	}
	returned := await()
	for _, op := range []fsnotify.Op{fsnotify.Write, fsnotify.Rename, fsnotify.Remove, fsnotify.Chmod} {
		select {
		case watcher.Events <- fsnotify.Event{Name: "c1:eth0.json", Op: op}: // taken: it waits still
		case <-returned:
			t.Fatalf("it returned before %s", op)
		}
	}
	watcher.Events <- fsnotify.Event{Name: "c1:eth0.json", Op: fsnotify.Create}
	require.NoError(t, <-returned)

	returned = await()
	watcher.Errors <- errors.New("events were lost")
	require.NoError(t, <-returned)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, d.awaitQueued(ctx, watcher), context.Canceled)
}
