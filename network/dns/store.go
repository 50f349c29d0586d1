package dns

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mnicloud/mnicloud/network/dns/names"
)

// formatVersion is that of the file. A file of another one is not read: what it says could mean something else.
const formatVersion = 1

// kept is the file's content.
type kept struct {
	Version   int              `json:"version"`
	Directory *names.Directory `json:"directory"`
}

// store keeps a directory in a file.
type store struct {
	path string
	last []byte // what the file has, as far as is known
}

// load reads the directory; nil when none has been kept yet.
func (s *store) load() (*names.Directory, error) {
	data, err := os.ReadFile(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var content kept
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.path, err)
	}
	if content.Version != formatVersion || content.Directory == nil {
		return nil, fmt.Errorf("read %s: it is of version %d, not %d", s.path, content.Version, formatVersion)
	}
	s.last = data
	content.Directory.Index()
	return content.Directory, nil
}

// save writes a directory that is not what the file has, in one step: whoever reads it, after whatever crash, finds the old or the new.
func (s *store) save(directory *names.Directory) error {
	data, err := json.Marshal(kept{Version: formatVersion, Directory: directory})
	if err != nil || bytes.Equal(data, s.last) {
		return err
	}
	dir := filepath.Dir(s.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, filepath.Base(s.path)+".*")
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), s.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keep what is known: %w", err), os.Remove(file.Name()))
	}
	s.last = data
	return nil
}
