// Package cloud drives a real cloud on this machine for tests that need one of their own for long: benchmarks and soaks. It
// runs the programs under bin/, as a person would.
package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	machine "github.com/mnicloud/mnicloud/distro/cloud"
	"github.com/mnicloud/mnicloud/distro/supervisor"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

// Image names in the cloud's own registry.
const (
	Whoami  = "registry.mni.internal/mni/whoami:latest"
	Busybox = "registry.mni.internal/mni/busybox:latest"
)

// Cloud is an instance on this machine.
type Cloud struct{ Instance string }

// Mni runs a command of mni on the instance and returns what it printed on standard output.
func (c Cloud) Mni(ctx context.Context, args ...string) (string, error) {
	return c.MniInput(ctx, "", args...)
}

// MniInput is Mni with standard input.
func (c Cloud) MniInput(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(apiserver.Root(), "bin", "mni"), append([]string{args[0], "--instance", c.Instance}, args[1:]...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("mni %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Part is one part of the cloud as `mni status` tells of it.
type Part struct {
	Name        string `json:"name"`
	State       string `json:"state"`
	PID         int    `json:"pid"`
	Restarts    int    `json:"restarts"`
	MemoryBytes int64  `json:"memoryBytes"`
}

// Parts lists the parts of the cloud. That some are not ready is no error.
func (c Cloud) Parts(ctx context.Context) ([]Part, error) {
	out, err := c.Mni(ctx, "status", "-o", "json")
	var status struct {
		Parts []Part `json:"parts"`
	}
	if parseErr := json.Unmarshal([]byte(out), &status); parseErr != nil {
		return nil, errors.Join(err, parseErr)
	}
	return status.Parts, nil
}

// Kill kills a part at once; the supervisor starts it again. One that does not run now is left alone.
func (c Cloud) Kill(ctx context.Context, name string) error {
	parts, err := c.Parts(ctx)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if p.Name == name && p.PID > 0 {
			if err := unix.Kill(p.PID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill %s (%d): %w", name, p.PID, err)
			}
		}
	}
	return nil
}

// killNow is Kill that asks the supervisor itself, and so is done before a program that has just started has done anything.
func (c Cloud) killNow(ctx context.Context, name string) error {
	found, ok, err := machine.Registry().Find(c.Instance)
	if err != nil || !ok {
		return fmt.Errorf("find instance %s: %w", c.Instance, err)
	}
	status, err := supervisor.NewClient(found.SupervisorSocket()).Status(ctx, 0, false)
	if err != nil {
		return err
	}
	for _, p := range status.Parts {
		if p.Name == name && p.PID > 0 {
			return unix.Kill(p.PID, unix.SIGKILL)
		}
	}
	return nil
}

// KeepDown kills a part again and again, within milliseconds of each start, until up is called.
func (c Cloud) KeepDown(ctx context.Context, name string) (up func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = c.killNow(ctx, name) // the next time will do
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// Eventually waits until check returns nil and returns its last error when the time is up.
func Eventually(ctx context.Context, within time.Duration, what string, check func(ctx context.Context) error) error {
	return every(ctx, 200*time.Millisecond, within, what, check)
}

// EveryMoment is Eventually for what is timed: it looks a hundred times a second.
func EveryMoment(ctx context.Context, within time.Duration, what string, check func(ctx context.Context) error) error {
	return every(ctx, 10*time.Millisecond, within, what, check)
}

func every(ctx context.Context, interval, within time.Duration, what string, check func(ctx context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, within, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: not within %s: %w", what, within, errors.Join(err, last))
	}
	return nil
}
