package packages

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// policy-rc.d is what Debian's maintainer scripts ask before they start a service (invoke-rc.d(8), deb-systemd-invoke(1)):
// exit status 101 forbids it. https://people.debian.org/~hmh/invokerc.d-policyrc.d-specification.txt
const (
	policyPath   = "usr/sbin/policy-rc.d"
	policySaved  = "usr/sbin/policy-rc.d.before-mni"
	policyMarker = "# Put here by mNi Cloud while it installs packages; removed afterwards."
)

var policyScript = []byte("#!/bin/sh\n" + policyMarker + "\nexit 101\n")

// forbidServices keeps maintainer scripts under root from starting services until restore is called. A policy that the
// machine has already is put aside and comes back. What an interrupted installation left behind is put right first.
func forbidServices(root string) (restore func() error, err error) {
	path, saved := filepath.Join(root, policyPath), filepath.Join(root, policySaved)
	if err := restorePolicy(path, saved); err != nil {
		return nil, err
	}
	switch err := os.Rename(path, saved); {
	case err == nil, errors.Is(err, fs.ErrNotExist):
	default:
		return nil, fmt.Errorf("put the machine's own policy-rc.d aside: %w", err)
	}
	restore = func() error { return restorePolicy(path, saved) }
	if err := writePolicy(path); err != nil {
		return nil, errors.Join(err, restore())
	}
	return restore, nil
}

// writePolicy makes the policy in one step: no reader ever sees half of it.
func writePolicy(path string) error {
	temporary := path + ".new-mni"
	if err := os.WriteFile(temporary, policyScript, 0o755); err != nil {
		return fmt.Errorf("forbid services to start: %w", err)
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return fmt.Errorf("forbid services to start: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("forbid services to start: %w", err)
	}
	return nil
}

// restorePolicy removes our policy and brings the machine's own back, whatever of the two there is.
func restorePolicy(path, saved string) error {
	present, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("read policy-rc.d: %w", err)
	case bytes.Contains(present, []byte(policyMarker)):
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("allow services to start again: %w", err)
		}
	default:
		return nil // the machine's own, never touched
	}
	if err := os.Rename(saved, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bring the machine's own policy-rc.d back: %w", err)
	}
	return nil
}
