package supervisor

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/cgroup"
)

// State is what a part is doing.
type State string

// The states of a part.
const (
	// Waiting for the parts it comes after.
	Waiting State = "Waiting"
	// Starting: it runs and is not ready yet.
	Starting State = "Starting"
	// Ready: it was seen ready since it was started.
	Ready State = "Ready"
	// Done: a job that has ended well.
	Done State = "Done"
	// Unhealthy: it runs and was ready, and does not answer now.
	Unhealthy State = "Unhealthy"
	// BackOff: it died and is started again after a pause.
	BackOff State = "BackOff"
	// Stopping: it was told to end.
	Stopping State = "Stopping"
	// Stopped: it has ended because it was told to.
	Stopped State = "Stopped"
)

// How long a part that dies has to wait: the first time hardly, then twice as long each time, until it has run well.
const (
	firstBackOff = 200 * time.Millisecond
	lastBackOff  = 30 * time.Second
	ranWell      = time.Minute
)

// unit runs one part.
type unit struct {
	plan   Plan // that it was started from
	part   Part
	cancel context.CancelFunc
	ready  chan struct{} // closed when first seen ready
	done   chan struct{} // closed when stopped for good
}

// run keeps the part running until the context ends.
func (s *Supervisor) run(ctx context.Context, u *unit, before []*unit) {
	defer close(u.done)
	current, err := findProcess(u.plan, u.part)
	if err != nil {
		s.log.Error("cannot look for a running part", "part", u.part.Name, "error", err)
	}
	if current != nil && current.revision != u.part.digest() {
		s.log.Info("replacing a part that was started from another plan", "part", u.part.Name, "pid", current.pid)
		s.end(context.WithoutCancel(ctx), u, current)
		current = nil
	}
	if current == nil && !s.await(ctx, u, before) {
		s.set(u, PartStatus{State: Stopped})
		return
	}
	backOff := firstBackOff
	for ctx.Err() == nil {
		var message string
		if current == nil {
			if current, err = startProcess(u.plan, u.part); err != nil {
				message = err.Error()
			}
		} else {
			s.log.Info("took over a running part", "part", u.part.Name, "pid", current.pid)
		}
		if current != nil {
			var well bool
			message, well = s.attend(ctx, u, current)
			if u.part.Once && well {
				s.markReady(u)
				s.set(u, PartStatus{State: Done})
				<-ctx.Done()
			}
			if ctx.Err() != nil {
				break
			}
			if time.Since(current.since) > ranWell {
				backOff = firstBackOff
			}
			current = nil
		}
		s.log.Warn("a part ended", "part", u.part.Name, "how", message, "again in", backOff)
		s.countRestart(u.part.Name)
		s.set(u, PartStatus{State: BackOff, Message: message})
		if !sleep(ctx, backOff) {
			break
		}
		backOff = min(2*backOff, lastBackOff)
	}
	s.set(u, PartStatus{State: Stopped})
}

// await blocks until all units are ready; false when the context ended first.
func (s *Supervisor) await(ctx context.Context, u *unit, before []*unit) bool {
	s.set(u, PartStatus{State: Waiting})
	for _, b := range before {
		select {
		case <-b.ready:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// attend follows a running process to its end, or ends it when the context does.
func (s *Supervisor) attend(ctx context.Context, u *unit, p *process) (how string, well bool) {
	s.set(u, PartStatus{State: Starting, PID: p.pid, Since: p.since})
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		how, well = p.wait()
	}()
	alive, cancel := context.WithCancel(ctx)
	defer cancel()
	probed := make(chan struct{})
	go func() {
		defer close(probed)
		if !u.part.Once && u.part.Ready.wait(alive) == nil {
			s.set(u, PartStatus{State: Ready, PID: p.pid, Since: p.since})
			s.markReady(u)
		}
	}()
	select {
	case <-exited:
		cancel()
		<-probed
	case <-ctx.Done():
		<-probed
		s.set(u, PartStatus{State: Stopping, PID: p.pid, Since: p.since})
		if err := p.stop(context.WithoutCancel(ctx), exited, u.part.StopTimeout); err != nil {
			s.log.Error("cannot stop a part", "part", u.part.Name, "error", err)
		}
	}
	return how, well
}

// end stops a process that no unit attends yet.
func (s *Supervisor) end(ctx context.Context, u *unit, p *process) {
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		p.wait()
	}()
	if err := p.stop(ctx, exited, u.part.StopTimeout); err != nil {
		s.log.Error("cannot stop a part", "part", u.part.Name, "error", err)
	}
}

// sweepGrace is how long the processes below a swept part have to end by themselves.
const sweepGrace = 3 * time.Second

// sweep ends everything in the part's Sweep group.
func (s *Supervisor) sweep(u *unit) {
	if u.part.Sweep == "" {
		return
	}
	tree, err := cgroup.Detect()
	if err == nil {
		err = KillGroup(tree, u.part.Sweep, sweepGrace)
	}
	if err != nil {
		s.log.Error("cannot end what a part left", "part", u.part.Name, "error", err)
	}
}

// KillGroup ends all processes in a control group: politely, and after the grace by force. It returns when none is left.
func KillGroup(tree cgroup.Tree, path string, grace time.Duration) error {
	deadline := time.Now().Add(grace)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	asked := map[int]bool{}
	for {
		pids, err := tree.Processes(path)
		if err != nil {
			return err
		}
		force := time.Now().After(deadline)
		living := 0
		for _, pid := range pids {
			if _, state, err := started(pid); err != nil || state == 'Z' || state == 'X' {
				continue
			}
			living++
			switch {
			case force:
				_ = unix.Kill(pid, unix.SIGKILL)
			case !asked[pid]:
				asked[pid] = true
				_ = unix.Kill(pid, unix.SIGTERM)
			}
		}
		if living == 0 {
			return nil
		}
		if time.Now().After(deadline.Add(10 * time.Second)) {
			return errStillRunning(pids)
		}
		<-again.C
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
