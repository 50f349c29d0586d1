package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// queueSuffix ends the name of a complete entry; other files are ones a crash left unfinished.
const queueSuffix = ".json"

// Enqueue writes a DEL to the queue, so that it survives a crash of the machine: the daemon replays it. Repeating it changes
// nothing.
func Enqueue(dir string, request Request) error {
	request.Version = Version
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, Key(request.ContainerID, request.IfName)+queueSuffix), data, 0o600)
}

// Queued is an entry of the queue.
type Queued struct {
	// Path of the entry; remove it when the request is done.
	Path string
	// Request is the detachment.
	Request Request
	// Err is set when the entry cannot be read; Request is empty then.
	Err error
}

// Queue lists the entries in dir. A folder that does not exist is an empty queue.
func Queue(dir string) ([]Queued, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the queue of detachments: %w", err)
	}
	var queued []Queued
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), queueSuffix) || strings.HasPrefix(entry.Name(), temporaryPrefix) {
			continue
		}
		q := Queued{Path: filepath.Join(dir, entry.Name())}
		data, err := os.ReadFile(q.Path)
		if err == nil {
			err = json.Unmarshal(data, &q.Request)
		}
		if err == nil && q.Request.Version != Version {
			err = fmt.Errorf("version %d is not known", q.Request.Version)
		}
		if err != nil {
			q.Err = fmt.Errorf("queued detachment %s: %w", q.Path, err)
		}
		queued = append(queued, q)
	}
	return queued, nil
}
