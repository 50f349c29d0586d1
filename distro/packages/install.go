package packages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockPath keeps two installations from replacing each other's policy-rc.d.
const lockPath = "/run/lock/mni-packages"

// stopGrace is how long apt-get may take to end after an interrupt before it is killed.
const stopGrace = 30 * time.Second

// ErrNotRoot tells that packages can be installed by root only.
var ErrNotRoot = errors.New("installing packages needs root: run it again with sudo")

// Install installs the missing ones of the wanted packages and returns them. What apt-get says goes to out. It starts and
// enables no service, removes no package, and does nothing at all when nothing is missing.
func Install(ctx context.Context, wanted []Package, out io.Writer) ([]Package, error) {
	lacking, err := Missing(ctx, wanted)
	if err != nil || len(lacking) == 0 {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	unlock, err := lock(ctx, lockPath)
	if err != nil {
		return nil, err
	}
	defer unlock()
	// Another installation may have done it while this one waited.
	if lacking, err = Missing(ctx, wanted); err != nil || len(lacking) == 0 {
		return nil, err
	}
	restore, err := forbidServices("/")
	if err != nil {
		return nil, err
	}
	err = install(ctx, Names(lacking), out)
	if err := errors.Join(err, restore()); err != nil {
		return nil, err
	}
	if err := disableUnits(ctx, lacking); err != nil {
		return nil, err
	}
	still, err := Missing(ctx, lacking)
	if err != nil {
		return nil, err
	}
	if len(still) > 0 {
		return nil, fmt.Errorf("apt-get reported success but these packages are still missing: %s: run `apt-get install %s` by hand and look at what it says",
			strings.Join(Names(still), " "), strings.Join(Names(still), " "))
	}
	return lacking, nil
}

// install tries with the package lists the machine has, and once more with fresh ones when they do not do.
func install(ctx context.Context, names []string, out io.Writer) error {
	args := append([]string{"install", "--yes", "--no-install-recommends", "--no-remove"}, names...)
	said, err := aptGet(ctx, out, args...)
	if err == nil || ctx.Err() != nil || !staleLists(said) {
		return explain(names, said, err)
	}
	if said, err := aptGet(ctx, out, "update"); err != nil {
		return explain(names, said, err)
	}
	said, err = aptGet(ctx, out, args...)
	return explain(names, said, err)
}

// staleLists tells from apt-get's words whether fresh package lists may help.
func staleLists(said string) bool {
	return slices.ContainsFunc([]string{
		"Unable to locate package", "has no installation candidate", "404  Not Found", "Failed to fetch", "unmet dependencies",
	}, func(s string) bool { return strings.Contains(said, s) })
}

// aptGet runs apt-get, never interactive, waiting for another package manager to finish. It returns what it said.
func aptGet(ctx context.Context, out io.Writer, args ...string) (string, error) {
	options := []string{
		"--quiet", "--option", "DPkg::Lock::Timeout=300",
		"--option", "Dpkg::Options::=--force-confdef", "--option", "Dpkg::Options::=--force-confold",
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "apt-get", append(options, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "NEEDRESTART_SUSPEND=1")
	cmd.Stdout = io.MultiWriter(out, &said)
	cmd.Stderr = cmd.Stdout
	// An interrupted dpkg leaves a half-configured package: ask it to stop rather than kill it.
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = stopGrace
	err := cmd.Run()
	return said.String(), err
}

// explain turns apt-get's failure into what is wrong and what to do.
func explain(names []string, said string, err error) error {
	if err == nil {
		return nil
	}
	list := strings.Join(names, " ")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("apt-get not found: the cloud installs its packages on Debian 12 or later (or a derivative)")
	case strings.Contains(said, "Unable to locate package"), strings.Contains(said, "has no installation candidate"):
		return fmt.Errorf("install %s: not in the machine's package sources: check /etc/apt/sources.list and /etc/apt/sources.list.d: %s", list, errorLines(said))
	case strings.Contains(said, "Packages need to be removed"):
		return fmt.Errorf("install %s: this would remove packages that the machine has now, so nothing was changed: %s", list, errorLines(said))
	case strings.Contains(said, "Could not get lock"):
		return fmt.Errorf("install %s: another package manager is at work: wait for it and run this again: %s", list, errorLines(said))
	case strings.Contains(said, "don't have enough free space"), strings.Contains(said, "No space left on device"):
		return fmt.Errorf("install %s: the disk is full: free some space and run this again: %s", list, errorLines(said))
	case strings.Contains(said, "Failed to fetch"), strings.Contains(said, "Could not resolve"), strings.Contains(said, "Could not connect"):
		return fmt.Errorf("install %s: the package sources cannot be reached: check the machine's network: %s", list, errorLines(said))
	}
	return fmt.Errorf("install %s: apt-get: %w: %s", list, err, errorLines(said))
}

// errorLines are the lines in which apt-get names errors, or its last line when there are none.
func errorLines(said string) string {
	var errs []string
	last := ""
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "E: "); ok {
			errs = append(errs, rest)
		}
		if line != "" {
			last = line
		}
	}
	if len(errs) == 0 {
		return last
	}
	return strings.Join(errs, "; ")
}

// disableUnits keeps freshly installed services from starting at the next boot.
func disableUnits(ctx context.Context, list []Package) error {
	for _, p := range list {
		for _, unit := range p.Units {
			cmd := exec.CommandContext(ctx, "deb-systemd-helper", "disable", unit)
			cmd.Env = append(os.Environ(), "DPKG_MAINTSCRIPT_PACKAGE="+p.Name) // it insists on being told whose unit it is
			out, err := cmd.CombinedOutput()
			if err != nil && !errors.Is(err, exec.ErrNotFound) {
				return fmt.Errorf("disable %s, which package %s enabled: %w: %s", unit, p.Name, err, bytes.TrimSpace(out))
			}
		}
	}
	return nil
}

// lock waits for an exclusive lock on a file, which ends with the process at the latest.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll("/run/lock", 0o755); err != nil {
		return nil, fmt.Errorf("make the lock directory: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for another installation (%s): %w", path, ctx.Err())
		case <-ticker.C:
		}
	}
}
