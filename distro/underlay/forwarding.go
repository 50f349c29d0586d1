package underlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mnicloud/mnicloud/distro/instance"
)

// Forwarding turns the machine's IPv4 forwarding on while any instance runs, and remembers how it was.
type Forwarding struct {
	// Dir holds the memory, shared by all instances.
	Dir string
	// Sysctl is the kernel's file, /proc/sys/net/ipv4/ip_forward.
	Sysctl string
}

// MachineForwarding is the real machine's.
func MachineForwarding() Forwarding {
	return Forwarding{Dir: instance.StateRoot, Sysctl: "/proc/sys/net/ipv4/ip_forward"}
}

// forwardingState is on disk while an instance needs forwarding and it was off before.
type forwardingState struct {
	// Boot is the boot in which it was turned on: a reboot forgets the setting, and so does this.
	Boot  string   `json:"boot"`
	Users []string `json:"users"`
}

// Acquire turns forwarding on for an instance.
func (f Forwarding) Acquire(name string) error {
	return f.update(func(s *forwardingState, on bool) error {
		if !on {
			if err := os.WriteFile(f.Sysctl, []byte("1"), 0); err != nil {
				return fmt.Errorf("turn on IPv4 forwarding: %w", err)
			}
		}
		// Whoever turned it on first, if it was one of us: the others keep it on after the first has gone.
		if (!on || len(s.Users) > 0) && !slices.Contains(s.Users, name) {
			s.Users = append(s.Users, name)
		}
		return nil
	})
}

// Release turns forwarding off again when it was off before the first instance started and this is the last.
func (f Forwarding) Release(name string) error {
	return f.update(func(s *forwardingState, _ bool) error {
		if !slices.Contains(s.Users, name) {
			return nil
		}
		s.Users = slices.DeleteFunc(s.Users, func(u string) bool { return u == name })
		if len(s.Users) > 0 {
			return nil
		}
		if err := os.WriteFile(f.Sysctl, []byte("0"), 0); err != nil {
			return fmt.Errorf("turn IPv4 forwarding off again: %w", err)
		}
		return nil
	})
}

func (f Forwarding) update(change func(s *forwardingState, on bool) error) error {
	if err := os.MkdirAll(f.Dir, 0o755); err != nil {
		return err
	}
	unlock, err := instance.Lock(filepath.Join(f.Dir, "forwarding.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	file := filepath.Join(f.Dir, "forwarding.json")
	var s forwardingState
	if raw, err := os.ReadFile(file); err == nil {
		if json.Unmarshal(raw, &s) != nil || s.Boot != string(boot) {
			s = forwardingState{}
		}
	}
	s.Boot = string(boot)
	now, err := os.ReadFile(f.Sysctl)
	if err != nil {
		return fmt.Errorf("read IPv4 forwarding: %w", err)
	}
	if err := change(&s, strings.TrimSpace(string(now)) == "1"); err != nil {
		return err
	}
	if len(s.Users) == 0 {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return instance.WriteFile(file, raw, 0o644)
}
