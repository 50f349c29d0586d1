package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/mnicloud/mnicloud/distro/instance"
)

// PartStatus is how one part is.
type PartStatus struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	PID   int    `json:"pid,omitempty"`
	// Since is when the process was started.
	Since time.Time `json:"since,omitzero"`
	// Restarts counts since the instance was started.
	Restarts int `json:"restarts"`
	// MemoryBytes is the resident memory.
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	// Message says how it last ended, or why it is not healthy.
	Message string `json:"message,omitempty"`
}

// Ready says that the part does its work, or has done it.
func (p PartStatus) Ready() bool { return p.State == Ready || p.State == Done }

// Status is how an instance's parts are.
type Status struct {
	Instance string `json:"instance"`
	// Generation grows with every change of a part's state.
	Generation uint64       `json:"generation"`
	Stopping   bool         `json:"stopping,omitempty"`
	Parts      []PartStatus `json:"parts"`
	// Guards are the supervisor itself and its keeper.
	Guards []PartStatus `json:"guards,omitempty"`
}

// Ready says that every part is ready, or done.
func (s Status) Ready() bool {
	return len(s.Parts) > 0 && !slices.ContainsFunc(s.Parts, func(p PartStatus) bool { return !p.Ready() })
}

// Supervisor runs a plan.
type Supervisor struct {
	log *slog.Logger

	applying sync.Mutex // one plan or stop at a time

	mu       sync.Mutex
	plan     Plan
	units    map[string]*unit
	status   map[string]PartStatus
	restarts map[string]int
	serial   uint64
	changed  chan struct{} // closed and replaced on every change
	stopping bool
}

// New makes a supervisor with nothing to do.
func New(log *slog.Logger) *Supervisor {
	return &Supervisor{
		log: log, units: map[string]*unit{}, status: map[string]PartStatus{},
		restarts: map[string]int{}, changed: make(chan struct{}),
	}
}

// Apply makes the plan the one that runs: takes over what runs already, starts what is missing, stops what is no longer
// in it and restarts what changed. It does not wait for readiness. The parts outlive the context: only Stop or another plan
// ends them.
func (s *Supervisor) Apply(ctx context.Context, plan Plan) error {
	if err := plan.Validate(); err != nil {
		return err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return errors.New("the instance is being stopped")
	}
	var ending []*unit
	for name, u := range s.units {
		part, wanted := plan.Part(name)
		if !wanted || part.digest() != u.part.digest() {
			ending = append(ending, u)
		}
	}
	first := len(s.units) == 0
	s.mu.Unlock()
	s.endAll(ending)

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range ending {
		delete(s.units, u.part.Name)
		delete(s.status, u.part.Name)
	}
	s.plan = plan
	if first {
		s.restarts = s.readRestarts()
	}
	var started []*unit
	for _, part := range plan.Parts {
		if s.units[part.Name] == nil {
			u := &unit{plan: plan, part: part, ready: make(chan struct{}), done: make(chan struct{})}
			s.units[part.Name] = u
			started = append(started, u)
		}
	}
	for _, u := range started {
		var before []*unit
		for _, name := range u.part.After {
			before = append(before, s.units[name])
		}
		running, cancel := context.WithCancel(context.WithoutCancel(ctx))
		u.cancel = cancel
		s.status[u.part.Name] = PartStatus{Name: u.part.Name, State: Waiting}
		go s.run(running, u, before)
	}
	if first || len(ending)+len(started) > 0 {
		s.bump()
	}
	return nil
}

// Stop stops everything, each part after those that come after it, and returns when all have ended.
func (s *Supervisor) Stop() {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mu.Lock()
	s.stopping = true
	all := make([]*unit, 0, len(s.units))
	for _, u := range s.units {
		all = append(all, u)
	}
	s.bump()
	s.mu.Unlock()
	s.endAll(all, s.sweep)
}

// endAll ends units, each after those among them that come after it.
func (s *Supervisor) endAll(units []*unit, after ...func(*unit)) {
	gone := map[string]chan struct{}{}
	for _, u := range units {
		gone[u.part.Name] = make(chan struct{})
	}
	var all sync.WaitGroup
	for _, u := range units {
		all.Go(func() {
			defer close(gone[u.part.Name])
			for _, other := range units {
				if slices.Contains(other.part.After, u.part.Name) {
					<-gone[other.part.Name]
				}
			}
			u.cancel()
			<-u.done
			for _, do := range after {
				do(u)
			}
		})
	}
	all.Wait()
}

func (s *Supervisor) set(u *unit, status PartStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.units[u.part.Name] != u {
		return
	}
	status.Name = u.part.Name
	if status.Message == "" && status.State != Ready && status.State != Done {
		status.Message = s.status[u.part.Name].Message
	}
	s.status[u.part.Name] = status
	s.bump()
}

// bump tells everyone who waits that something changed. The lock is held.
func (s *Supervisor) bump() {
	s.serial++
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Supervisor) markReady(u *unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-u.ready:
	default:
		close(u.ready)
	}
}

// Status waits until the generation is above the one given (or the context ends) and returns how the parts are.
// With probe set, ready parts are asked whether they still are.
func (s *Supervisor) Status(ctx context.Context, above uint64, probe bool) Status {
	for {
		s.mu.Lock()
		changed := s.changed
		if s.serial > above || ctx.Err() != nil {
			break
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	status := Status{Instance: s.plan.Instance, Generation: s.serial, Stopping: s.stopping}
	for _, part := range s.plan.Parts {
		p := s.status[part.Name]
		p.Restarts = s.restarts[part.Name]
		status.Parts = append(status.Parts, p)
	}
	plan := s.plan
	s.mu.Unlock()

	var probes sync.WaitGroup
	for i := range status.Parts {
		p := &status.Parts[i]
		if p.PID == 0 {
			continue
		}
		p.MemoryBytes = residentBytes(p.PID)
		if part, ok := plan.Part(p.Name); probe && ok && p.State == Ready {
			probes.Go(func() {
				limited, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				if err := part.Ready.Check(limited); err != nil {
					p.State, p.Message = Unhealthy, err.Error()
				}
			})
		}
	}
	probes.Wait()
	status.Guards = guards(plan)
	return status
}

func (s *Supervisor) countRestart(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarts[name]++
	raw, err := json.Marshal(s.restarts)
	if err == nil {
		err = instance.WriteFile(s.restartsFile(), raw, 0o600)
	}
	if err != nil {
		s.log.Error("cannot remember how often parts were restarted", "error", err)
	}
}

func (s *Supervisor) restartsFile() string { return filepath.Join(s.plan.RunDir, "restarts.json") }

func (s *Supervisor) readRestarts() map[string]int {
	counts := map[string]int{}
	raw, err := os.ReadFile(s.restartsFile())
	if err == nil {
		err = json.Unmarshal(raw, &counts)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Error("cannot read how often parts were restarted", "error", err)
	}
	return counts
}

// digest changes with everything that needs a restart to take effect.
func (p Part) digest() string {
	raw, err := json.Marshal([]any{p.Command, p.Env, p.Revision, p.Place})
	if err != nil {
		panic(err) // strings only
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

func errStillRunning(pids []int) error {
	return fmt.Errorf("processes %v do not end, not even when killed: they wait in the kernel (a disk or a mount that does not answer?)", pids)
}
