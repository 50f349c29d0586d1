package instance

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAHeldLockIsNotTakenTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := TryLock(path)
	require.NoError(t, err)
	_, err = TryLock(path)
	require.ErrorIs(t, err, ErrLocked)
	unlock()
	unlock, err = TryLock(path)
	require.NoError(t, err)
	unlock()
}

func TestALockWhoseFileIsRemovedIsStillHeldByOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	const workers, rounds = 8, 50
	var group sync.WaitGroup
	held := make(chan struct{}, 1) // full while one holds the lock
	for range workers {
		group.Go(func() {
			for range rounds {
				unlock, err := Lock(path)
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case held <- struct{}{}:
				default:
					t.Error("two hold the lock")
				}
				if _, err := TryLock(path); err == nil {
					t.Error("the lock is taken though it is held")
				}
				<-held
				if err := os.Remove(path); err != nil { // the last that the holder does: from here on another may hold it
					t.Error(err)
				}
				unlock()
			}
		})
	}
	group.Wait()
	require.NoFileExists(t, path)
}
