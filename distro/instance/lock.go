package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process holds a lock.
var ErrLocked = errors.New("locked by another process")

// Lock waits for the exclusive lock on a file and returns what releases it. The kernel releases it when the process dies.
// Who holds it may remove the file as the last thing it does: from then on another may lock the next file of that name.
func Lock(path string) (unlock func(), err error) { return lock(path, unix.LOCK_EX) }

// TryLock is Lock that fails with ErrLocked instead of waiting.
func TryLock(path string) (unlock func(), err error) { return lock(path, unix.LOCK_EX|unix.LOCK_NB) }

func lock(path string, how int) (func(), error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open the lock: %w", err)
		}
		current, err := flock(f, how)
		if err == nil && current {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// flock locks an open file. It is current unless its name has been removed, or given to another file, meanwhile.
func flock(f *os.File, how int) (current bool, err error) {
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return false, err
	}
	locked, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(locked, named), err
}
