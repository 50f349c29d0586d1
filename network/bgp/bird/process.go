package bird

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is a BIRD: our child, or an earlier process's.
type process struct {
	pid int
	cmd *exec.Cmd // nil for an earlier process's

	mu    sync.Mutex
	pidfd int // -1 once it has ended
}

// startProcess starts the program in a session of its own, so that it outlives us.
func startProcess(program string, args []string, out *os.File) (*process, error) {
	cmd := exec.Command(program, args...) //nolint:noctx // it outlives every context of ours
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return &process{pid: cmd.Process.Pid, cmd: cmd, pidfd: pidfd}, nil
}

// findProcess returns the process of that number when it has the argument and runs; nil when it does not.
func findProcess(pid int, argument string) (*process, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at process %d: %w", pid, err)
	}
	// From here on the number cannot be given to another process unseen.
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !slices.Contains(strings.Split(string(raw), "\x00"), argument) || unix.PidfdSendSignal(pidfd, 0, nil, 0) != nil {
		return nil, unix.Close(pidfd)
	}
	return &process{pid: pid, pidfd: pidfd}, nil
}

// runs tells whether the process was started from what is the program's file now.
func (p *process) runs(program string) bool {
	own, err := os.Stat(fmt.Sprintf("/proc/%d/exe", p.pid))
	if err != nil {
		return true // it is about to end; nothing to replace
	}
	file, err := os.Stat(program)
	return err == nil && os.SameFile(own, file)
}

// wait blocks until the process has ended. It is called once.
func (p *process) wait() {
	if p.cmd != nil {
		_ = p.cmd.Wait()
	} else {
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}, -1); !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = unix.Close(p.pidfd)
	p.pidfd = -1
}

func (p *process) terminate() error { return p.signal(unix.SIGTERM) }

func (p *process) kill() error { return p.signal(unix.SIGKILL) }

// signal never reaches another process that got the number.
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
