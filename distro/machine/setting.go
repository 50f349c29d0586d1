// Package machine changes the few settings of the machine itself that an instance cannot do without, remembers how they
// were, and puts them back when the last instance that needs them has gone.
package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/instance"
)

// Setting is something that is either on or off.
type Setting struct {
	// Name is the base name of the file that remembers, in Dir.
	Name string
	Dir  string
	// On says whether it is on; TurnOn and TurnOff change it.
	On      func() (bool, error)
	TurnOn  func() error
	TurnOff func() error
}

// Settings are the machine's.
func Settings() []Setting {
	return []Setting{forwarding("/proc/sys/net/ipv4/ip_forward"), bpfFileSystem("/sys/fs/bpf")}
}

// forwarding lets the nodes reach the world through the machine.
func forwarding(file string) Setting {
	return Setting{
		Name: "forwarding", Dir: instance.StateRoot,
		On: func() (bool, error) {
			now, err := os.ReadFile(file)
			return strings.TrimSpace(string(now)) == "1", err
		},
		TurnOn:  func() error { return os.WriteFile(file, []byte("1"), 0) },
		TurnOff: func() error { return os.WriteFile(file, []byte("0"), 0) },
	}
}

// bpfFileSystem is where the network's programs and maps are pinned, the machine's own.
func bpfFileSystem(dir string) Setting {
	return Setting{
		Name: "bpf-file-system", Dir: instance.StateRoot,
		On: func() (bool, error) {
			var stat unix.Statfs_t
			err := unix.Statfs(dir, &stat)
			return stat.Type == unix.BPF_FS_MAGIC, err
		},
		TurnOn: func() error {
			return unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RELATIME, "mode=0700")
		},
		TurnOff: func() error {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			own := func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".debug") } // the kernel's
			if len(slices.DeleteFunc(entries, own)) > 0 {
				return nil // somebody else has come to use it
			}
			err = unix.Unmount(dir, 0)
			if errors.Is(err, unix.EBUSY) {
				return nil
			}
			return err
		},
	}
}

// memory is on disk while an instance needs a setting that one of the instances turned on.
type memory struct {
	// Boot is the boot in which it was turned on: a reboot forgets the setting, and so does this.
	Boot  string   `json:"boot"`
	Users []string `json:"users"`
}

// Acquire turns the setting on for an instance.
func (s Setting) Acquire(name string) error {
	return s.update(func(m *memory) error {
		on, err := s.On()
		if err != nil {
			return fmt.Errorf("look at the machine's %s: %w", s.Name, err)
		}
		if !on {
			if err := s.TurnOn(); err != nil {
				return fmt.Errorf("turn on the machine's %s: %w", s.Name, err)
			}
		}
		// Once one of the instances has turned it on, the others keep it on after that one has gone.
		if (!on || len(m.Users) > 0) && !slices.Contains(m.Users, name) {
			m.Users = append(m.Users, name)
		}
		return nil
	})
}

// Release turns the setting off again when it was off before the first instance started and this is the last.
func (s Setting) Release(name string) error {
	return s.update(func(m *memory) error {
		if !slices.Contains(m.Users, name) {
			return nil
		}
		m.Users = slices.DeleteFunc(m.Users, func(u string) bool { return u == name })
		if len(m.Users) > 0 {
			return nil
		}
		if err := s.TurnOff(); err != nil {
			return fmt.Errorf("turn off the machine's %s again: %w", s.Name, err)
		}
		return nil
	})
}

func (s Setting) update(change func(*memory) error) error {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(s.Dir, s.Name+".json")
	unlock, err := instance.Lock(filepath.Join(s.Dir, s.Name+".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	var m memory
	if raw, err := os.ReadFile(file); err == nil && (json.Unmarshal(raw, &m) != nil || m.Boot != string(boot)) {
		m = memory{}
	}
	m.Boot = string(boot)
	if err := change(&m); err != nil {
		return err
	}
	if len(m.Users) == 0 {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return instance.WriteFile(file, raw, 0o644)
}
