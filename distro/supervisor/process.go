package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/spawn"
)

// Marks in the environment of every part (and of what it starts), by which they are found again.
const (
	EnvInstance = "MNI_SUPERVISED_INSTANCE"
	envPart     = "MNI_SUPERVISED_PART"
	envRevision = "MNI_SUPERVISED_REVISION"
)

// process is a running part: our child, or one taken over.
type process struct {
	pid      int
	mu       sync.Mutex
	pidfd    int // -1 once it has ended
	since    time.Time
	revision string
	cmd      *exec.Cmd // nil for one taken over
}

// startProcess starts a part with its output appended to its log.
func startProcess(plan Plan, part Part) (*process, error) {
	logFile := plan.Log(part.Name)
	if err := os.MkdirAll(filepath.Dir(logFile), 0o700); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(part.Command[0], part.Command[1:]...) //nolint:noctx // stop ends it, and it outlives its supervisor
	cmd.Env = slices.Concat([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
		EnvInstance + "=" + plan.Instance, envPart + "=" + part.Name, envRevision + "=" + part.digest(),
	}, part.Env)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	if err := spawn.Start(part.Place, cmd); err != nil {
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", cmd.Process.Pid, err)
	}
	return &process{pid: cmd.Process.Pid, pidfd: pidfd, since: time.Now(), revision: part.digest(), cmd: cmd}, nil
}

// wait blocks until the process has ended and says how, as far as it can be known, and whether it ended well.
func (p *process) wait() (how string, well bool) {
	defer p.forget()
	if p.cmd != nil {
		if err := p.cmd.Wait(); err != nil {
			return err.Error(), false
		}
		return "exit status 0", true
	}
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}, -1)
		if err == nil {
			return "ended (it was started by an earlier supervisor, so its exit status is unknown)", false
		}
		if !errors.Is(err, unix.EINTR) {
			return err.Error(), false
		}
	}
}

// signal sends a signal to the process, never to another that got its number.
func (p *process) signal(sig unix.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pidfd < 0 {
		return nil
	}
	err := unix.PidfdSendSignal(p.pidfd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

func (p *process) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = unix.Close(p.pidfd)
	p.pidfd = -1
}

// findProcess looks for a part started by an earlier supervisor: the marks are in the environment, and the command line
// is the part's (children of a part inherit the marks).
func findProcess(plan Plan, part Part) (*process, error) {
	pids, err := Marked(plan.Instance)
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		env, err := environment(pid)
		if err != nil || env[envPart] != part.Name {
			continue
		}
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		// From here on the number cannot be given to another process unseen: read everything after the pidfd is open.
		since, revision, ok := identify(pid, part)
		if !ok || unix.PidfdSendSignal(pidfd, 0, nil, 0) != nil {
			_ = unix.Close(pidfd)
			continue
		}
		return &process{pid: pid, pidfd: pidfd, since: since, revision: revision}, nil
	}
	return nil, nil
}

func identify(pid int, part Part) (since time.Time, revision string, ok bool) {
	env, err := environment(pid)
	if err != nil || env[envPart] != part.Name {
		return since, "", false
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return since, "", false
	}
	program, _, _ := strings.Cut(string(cmdline), "\x00")
	if program != part.Command[0] {
		return since, "", false
	}
	since, state, err := started(pid)
	if err != nil || state == 'Z' || state == 'X' {
		return since, "", false
	}
	return since, env[envRevision], true
}

// Marked lists the processes whose environment says that they belong to the instance, oldest first.
func Marked(instance string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if env, err := environment(pid); err == nil && env[EnvInstance] == instance {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func environment(pid int) (map[string]string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for entry := range bytes.SplitSeq(raw, []byte{0}) {
		name, value, _ := strings.Cut(string(entry), "=")
		env[name] = value
	}
	return env, nil
}

// started reads a process' start time and state (proc_pid_stat(5), fields 22 and 3).
func started(pid int) (time.Time, byte, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, 0, err
	}
	end := bytes.LastIndexByte(raw, ')')
	fields := strings.Fields(string(raw[end+1:]))
	if end < 0 || len(fields) < 20 {
		return time.Time{}, 0, fmt.Errorf("unreadable /proc/%d/stat", pid)
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return time.Time{}, 0, err
	}

	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Time{}, 0, err
	}
	const ticksPerSecond = 100 // USER_HZ, fixed in the kernel's interface
	age := time.Duration(now.Nano()) - time.Duration(ticks)*time.Second/ticksPerSecond
	return time.Now().Add(-age), fields[0][0], nil
}

// residentBytes is a process' resident memory, 0 when it is gone.
func residentBytes(pid int) int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(raw))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// stop ends a process: politely, then after the timeout by force. exited is closed when it has ended.
func (p *process) stop(ctx context.Context, exited <-chan struct{}, timeout time.Duration) error {
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	if err := p.signal(unix.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-exited:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	if err := p.signal(unix.SIGKILL); err != nil {
		return err
	}
	<-exited
	return nil
}

// Alive says whether a process is running: neither gone nor a zombie that its parent has not collected.
func Alive(pid int) bool {
	_, state, err := started(pid)
	return err == nil && state != 'Z' && state != 'X'
}

// KillGuardsFirst kills processes, supervisors and keepers before the others, so that none of them starts another.
func KillGuardsFirst(pids []int) {
	var others []int
	for _, pid := range pids {
		env, err := environment(pid)
		if err == nil && (env[envPart] == string(RoleSupervisor) || env[envPart] == string(RoleKeeper)) {
			_ = unix.Kill(pid, unix.SIGKILL)
			continue
		}
		others = append(others, pid)
	}
	for _, pid := range others {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}
