package bird

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// Follow calls tell with each line that is written to a log file, until ctx ends. Its folder must exist; what
// the file holds already is not told. A file that is put in its place, as BIRD does when it is full, is followed instead.
func Follow(ctx context.Context, file string, tell func(line string)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch BIRD's log: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(filepath.Dir(file)); err != nil {
		return fmt.Errorf("watch BIRD's log: %w", err)
	}
	t := tail{file: file, tell: tell}
	defer t.close()
	if err := t.open(io.SeekEnd); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event := <-watcher.Events:
			if event.Name != file {
				continue
			}
			if event.Has(fsnotify.Create) {
				t.read() // the rest of the file before
				if err := t.open(io.SeekStart); err != nil {
					return err
				}
			}
			t.read()
		case err := <-watcher.Errors: // events were lost
			if err != nil && !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch BIRD's log: %w", err)
			}
			t.read()
		}
	}
}

// tail reads the lines that a file gets.
type tail struct {
	file    string
	tell    func(line string)
	handle  *os.File
	reader  *bufio.Reader
	partial string
}

func (t *tail) open(whence int) error {
	t.close()
	f, err := os.Open(t.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read BIRD's log: %w", err)
	}
	if _, err := f.Seek(0, whence); err != nil {
		return errors.Join(err, f.Close())
	}
	t.handle, t.reader, t.partial = f, bufio.NewReader(f), ""
	return nil
}

func (t *tail) close() {
	if t.handle != nil {
		_ = t.handle.Close()
	}
	t.handle, t.reader = nil, nil
}

func (t *tail) read() {
	for t.reader != nil {
		text, err := t.reader.ReadString('\n')
		t.partial += text
		if err != nil {
			return
		}
		t.tell(t.partial[:len(t.partial)-1])
		t.partial = ""
	}
}
