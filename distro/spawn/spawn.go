// Package spawn starts a process in a network namespace, a mount namespace and a control group, without a wrapper
// program: the thread that forks enters them first and is thrown away afterwards.
package spawn

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/cgroup"
)

// Place is where a process runs. Empty fields mean the caller's own.
type Place struct {
	// Netns and MountNamespace are files on which namespaces are pinned.
	Netns          string `json:"netns,omitempty"`
	MountNamespace string `json:"mountNamespace,omitempty"`
	// Cgroup is the path of a control group that exists in every hierarchy.
	Cgroup string `json:"cgroup,omitempty"`
	// Nice is how far it stands back for the other processes of its control group (-20 to 19, see setpriority(2)).
	Nice int `json:"nice,omitempty"`
}

// Start starts the command in the place, in a session of its own.
func Start(place Place, cmd *exec.Cmd) error {
	started := make(chan error, 1)
	go OnThread(func() { started <- start(place, cmd) })
	return <-started
}

func start(place Place, cmd *exec.Cmd) error {
	attr := &syscall.SysProcAttr{Setsid: true}
	cmd.SysProcAttr = attr
	if place.Cgroup != "" {
		tree, err := cgroup.Detect()
		if err != nil {
			return err
		}
		v2Dir, err := tree.EnterThread(place.Cgroup)
		if err != nil {
			return err
		}
		if v2Dir != "" {
			dir, err := os.Open(v2Dir)
			if err != nil {
				return fmt.Errorf("open control group: %w", err)
			}
			defer func() { _ = dir.Close() }()
			attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
		}
	}
	if err := enter(place); err != nil {
		return err
	}
	if place.Nice != 0 {
		// Of this thread alone; the child has it from there.
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, place.Nice); err != nil {
			return fmt.Errorf("set the priority %d: %w", place.Nice, err)
		}
	}
	return cmd.Start()
}

// enter moves the calling thread, which must be locked and never be used again, into the place's namespaces.
func enter(place Place) error {
	open := func(path string) (int, error) {
		if path == "" {
			return -1, nil
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, fmt.Errorf("open namespace %s: %w", path, err)
		}
		return fd, nil
	}
	net, err := open(place.Netns)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(net) }()
	mnt, err := open(place.MountNamespace)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(mnt) }()
	if net >= 0 {
		if err := unix.Setns(net, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", place.Netns, err)
		}
	}
	if mnt >= 0 {
		// A thread shares its root and working folder with its process until it says otherwise.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("leave the process' file system context: %w", err)
		}
		if err := unix.Setns(mnt, unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter mount namespace %s: %w", place.MountNamespace, err)
		}
	}
	return nil
}

// Run runs a function on a thread in the place's namespaces (its control group is not entered).
func Run(place Place, do func() error) error {
	done := make(chan error, 1)
	go OnThread(func() {
		if err := enter(place); err != nil {
			done <- err
			return
		}
		done <- do()
	})
	return <-done
}

// OnThread runs do, as a goroutine of its own, on a thread that ends with it: it is never unlocked. The process' first thread
// cannot end, and /proc/PID speaks of its namespaces, so it is only held while another one does the work.
func OnThread(do func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		do()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		do()
	}()
	<-done
	runtime.UnlockOSThread()
}
