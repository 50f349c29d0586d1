package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/spawn"
)

// Role is which of the two guarding processes one is.
type Role string

// The roles: each starts the other when it dies. Whoever holds a role holds the lock of its name, and the kernel lets
// go of the lock when its holder dies.
const (
	RoleSupervisor Role = "supervisor"
	RoleKeeper     Role = "keeper"
)

func (r Role) other() Role {
	if r == RoleSupervisor {
		return RoleKeeper
	}
	return RoleSupervisor
}

// Guard starts the processes of one instance that guard each other.
type Guard struct {
	// Command starts this program with the role appended: it must end up in Main.
	Command []string
	// PlanFile is where the plan is.
	PlanFile string
	// Place is where they run.
	Place spawn.Place
	// Maintain, if not nil, is called by the supervisor every few hours.
	Maintain func(context.Context) error
	Log      *slog.Logger
}

func lockFile(runDir string, role Role) string { return filepath.Join(runDir, string(role)+".lock") }

// stopFile, while it exists, tells the keeper that the supervisor ended because it was told to.
func stopFile(runDir string) string { return filepath.Join(runDir, "stopping") }

func isStopping(runDir string) bool {
	_, err := os.Stat(stopFile(runDir))
	return err == nil
}

// Running says whether some process holds the role.
func Running(runDir string, role Role) bool {
	if _, err := os.Stat(runDir); err != nil {
		return false
	}
	unlock, err := instance.TryLock(lockFile(runDir, role))
	if err == nil {
		unlock()
	}
	return errors.Is(err, instance.ErrLocked)
}

// Start starts a process in the role, detached from the caller.
func (g Guard) Start(plan Plan, role Role) error {
	if err := os.MkdirAll(plan.LogDir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(plan.LogDir, string(role)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(g.Command[0], append(g.Command[1:len(g.Command):len(g.Command)], string(role))...) //nolint:noctx // it outlives the caller
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "GOMEMLIMIT=64MiB", "GOGC=50",
		EnvInstance + "=" + plan.Instance, envPart + "=" + string(role),
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	if err := spawn.Start(g.Place, cmd); err != nil {
		return fmt.Errorf("start the %s: %w", role, err)
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

// Main is the life of a guarding process. It returns when the instance is stopped.
func (g Guard) Main(ctx context.Context, role Role) error {
	plan, err := ReadPlan(g.PlanFile)
	if err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	unlock, err := takeRole(ctx, plan.RunDir, role)
	if errors.Is(err, instance.ErrLocked) {
		g.Log.Info("another process has the role", "role", role)
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.WriteFile(lockFile(plan.RunDir, role), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if role == RoleKeeper {
		return g.guard(ctx, plan, role.other())
	}
	s := New(g.Log)
	listener, err := listen(plan.Socket(), g.Log)
	if err != nil {
		return err
	}
	if err := s.Apply(ctx, plan); err != nil {
		return err
	}
	go func() {
		if err := g.guard(ctx, plan, role.other()); err != nil {
			g.Log.Error("cannot guard the keeper", "error", err)
		}
	}()
	go rotateForever(ctx, plan, g.Log)
	go g.maintainForever(ctx)
	return s.serve(ctx, listener, func() {
		if err := os.WriteFile(stopFile(plan.RunDir), nil, 0o600); err != nil {
			g.Log.Error("cannot tell the keeper to end", "error", err)
		}
	})
}

// maintenanceInterval is how long after each other Maintain is called.
const maintenanceInterval = 6 * time.Hour

func (g Guard) maintainForever(ctx context.Context) {
	for g.Maintain != nil && sleep(ctx, maintenanceInterval) {
		if err := g.Maintain(ctx); err != nil {
			g.Log.Error("maintenance failed", "error", err, "again in", maintenanceInterval)
		}
	}
}

// guards says how the two guarding processes are.
func guards(plan Plan) []PartStatus {
	var all []PartStatus
	for _, role := range []Role{RoleSupervisor, RoleKeeper} {
		status := PartStatus{Name: string(role), State: BackOff}
		content, err := os.ReadFile(lockFile(plan.RunDir, role))
		if pid, convErr := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && convErr == nil {
			if since, state, err := started(pid); err == nil && state != 'Z' {
				status.State, status.PID, status.Since, status.MemoryBytes = Ready, pid, since, residentBytes(pid)
			}
		}
		all = append(all, status)
	}
	return all
}

// takeRole takes the role's lock; the guard of the last holder may hold it for a moment.
func takeRole(ctx context.Context, runDir string, role Role) (func(), error) {
	deadline := time.Now().Add(2 * time.Second)
	for {
		unlock, err := instance.TryLock(lockFile(runDir, role))
		if !errors.Is(err, instance.ErrLocked) || time.Now().After(deadline) || !sleep(ctx, 50*time.Millisecond) {
			return unlock, err
		}
	}
}

// guard starts a process in the role whenever there is none, until the instance is stopped.
func (g Guard) guard(ctx context.Context, plan Plan, role Role) error {
	backOff := firstBackOff
	for ctx.Err() == nil {
		unlock, err := instance.Lock(lockFile(plan.RunDir, role)) // blocks while there is one
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the run folder is gone
		}
		if err != nil {
			return err
		}
		unlock()
		if isStopping(plan.RunDir) || ctx.Err() != nil {
			return nil //nolint:nilerr // told to end, it ends well
		}
		g.Log.Warn("starting the other guard", "role", role)
		started := time.Now()
		if err := g.Start(plan, role); err != nil {
			g.Log.Error("cannot start the other guard", "role", role, "error", err)
		}
		for range 50 { // give it time to take its role
			if Running(plan.RunDir, role) || !sleep(ctx, 50*time.Millisecond) {
				break
			}
		}
		if time.Since(started) < time.Second {
			if !sleep(ctx, backOff) {
				return nil
			}
			backOff = min(2*backOff, lastBackOff)
		} else {
			backOff = firstBackOff
		}
	}
	return nil
}
