package supervisor

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The test binary is its own guard process: `supervisor.test guard PLANFILE ROLE`.
func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if len(os.Args) != 4 || os.Args[1] != "guard" {
		return m.Run()
	}
	if err := testGuard(os.Args[2]).Main(context.Background(), Role(os.Args[3])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func testGuard(planFile string) Guard {
	return Guard{
		Command: []string{os.Args[0], "guard", planFile}, PlanFile: planFile,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
}

// newPlan is a plan in folders of the test's own, whose processes are gone when the test ends.
func newPlan(t *testing.T, parts ...Part) Plan {
	t.Helper()
	dir, err := os.MkdirTemp("", "mni-supervisor") //nolint:usetesting // short: a socket's path is limited
	require.NoError(t, err)
	plan := Plan{Instance: filepath.Base(dir), LogDir: filepath.Join(dir, "logs"), RunDir: filepath.Join(dir, "run"), Parts: parts}
	require.NoError(t, os.MkdirAll(plan.RunDir, 0o700))
	t.Cleanup(func() {
		require.Eventually(t, func() bool {
			pids := living(t, plan.Instance)
			KillGuardsFirst(pids)
			return len(pids) == 0
		}, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, os.RemoveAll(dir))
	})
	return plan
}

func living(t *testing.T, instance string) []int {
	pids, err := Marked(instance)
	require.NoError(t, err)
	var out []int
	for _, pid := range pids {
		if Alive(pid) {
			out = append(out, pid)
		}
	}
	return out
}

func sleeper(name string, after ...string) Part {
	return Part{Name: name, Command: []string{"/bin/sleep", "1000"}, After: after}
}

func script(name, text string, after ...string) Part {
	return Part{Name: name, Command: []string{"/bin/sh", "-c", text}, After: after}
}

func newSupervisor(t *testing.T, plan Plan) *Supervisor {
	t.Helper()
	s := New(slog.New(slog.DiscardHandler))
	require.NoError(t, s.Apply(t.Context(), plan))
	t.Cleanup(s.Stop)
	return s
}

// until waits for a status that satisfies the condition.
func until(t *testing.T, get func(ctx context.Context, above uint64) (Status, error), condition func(Status) bool) Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var status Status
	for {
		var err error
		if status, err = get(ctx, status.Generation); err == nil && condition(status) {
			return status
		}
		if ctx.Err() != nil {
			t.Fatalf("waited too long (%v); last: %+v", err, status)
		}
	}
}

func (s *Supervisor) get(ctx context.Context, above uint64) (Status, error) {
	return s.Status(ctx, above, false), nil
}

func part(status Status, name string) PartStatus {
	for _, p := range status.Parts {
		if p.Name == name {
			return p
		}
	}
	return PartStatus{}
}

func TestAPartThatDiesIsStartedAgain(t *testing.T) {
	s := newSupervisor(t, newPlan(t, sleeper("a"), sleeper("b")))
	before := until(t, s.get, Status.Ready)
	require.NoError(t, unix.Kill(part(before, "a").PID, unix.SIGKILL))
	after := until(t, s.get, func(st Status) bool { return st.Ready() && part(st, "a").PID != part(before, "a").PID })
	require.Equal(t, 1, part(after, "a").Restarts)
	require.Equal(t, part(before, "b").PID, part(after, "b").PID, "the other part is left alone")
}

func TestAPartWaitsForWhatItComesAfter(t *testing.T) {
	plan := newPlan(t)
	socket := filepath.Join(plan.RunDir, "a.sock")
	a := sleeper("a")
	a.Ready = &Probe{Socket: socket}
	plan.Parts = []Part{sleeper("b", "a"), a}
	s := newSupervisor(t, plan)
	status := until(t, s.get, func(st Status) bool { return part(st, "a").State == Starting })
	require.Equal(t, Waiting, part(status, "b").State)
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	until(t, s.get, Status.Ready)
}

func TestAJobIsTriedUntilItSucceedsAndThenLetsOthersStart(t *testing.T) {
	plan := newPlan(t)
	mark := filepath.Join(plan.RunDir, "mark")
	job := script("job", fmt.Sprintf("test -e %[1]s && exit 0; touch %[1]s; exit 3", mark))
	job.Once = true
	plan.Parts = []Part{job, sleeper("b", "job")}
	s := newSupervisor(t, plan)
	status := until(t, s.get, Status.Ready)
	require.Equal(t, Done, part(status, "job").State)
	require.Equal(t, 1, part(status, "job").Restarts)
	require.Equal(t, Ready, part(status, "b").State)
}

func TestAPartThatCannotStayUpSaysHowItEnded(t *testing.T) {
	s := newSupervisor(t, newPlan(t, script("a", "echo no luck >&2; exit 7")))
	status := until(t, s.get, func(st Status) bool { return part(st, "a").State == BackOff && part(st, "a").Restarts > 1 })
	require.Contains(t, part(status, "a").Message, "exit status 7")
	log, err := os.ReadFile(s.plan.Log("a"))
	require.NoError(t, err)
	require.Contains(t, string(log), "no luck")
}

func TestAReadyPartThatDoesNotAnswerIsUnhealthy(t *testing.T) {
	plan := newPlan(t)
	socket := filepath.Join(plan.RunDir, "a.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	a := sleeper("a")
	a.Ready = &Probe{Socket: socket}
	plan.Parts = []Part{a}
	s := newSupervisor(t, plan)
	until(t, s.get, Status.Ready)
	require.NoError(t, listener.Close())
	status := s.Status(t.Context(), 0, true)
	require.Equal(t, Unhealthy, part(status, "a").State)
	require.NotEmpty(t, part(status, "a").Message)
}

func TestANewPlanRestartsOnlyWhatChanged(t *testing.T) {
	plan := newPlan(t, sleeper("same"), sleeper("changed"), sleeper("removed"))
	s := newSupervisor(t, plan)
	before := until(t, s.get, Status.Ready)
	changed := sleeper("changed")
	changed.Revision = "2"
	plan.Parts = []Part{sleeper("same"), changed, sleeper("added")}
	require.NoError(t, s.Apply(t.Context(), plan))
	after := until(t, s.get, Status.Ready)
	require.Len(t, after.Parts, 3)
	require.Equal(t, part(before, "same").PID, part(after, "same").PID)
	require.NotEqual(t, part(before, "changed").PID, part(after, "changed").PID)
	require.False(t, Alive(part(before, "removed").PID))
	require.NotZero(t, part(after, "added").PID)
	require.Zero(t, part(after, "changed").Restarts, "a wanted restart is not counted")
}

func TestTheSamePlanChangesNothing(t *testing.T) {
	plan := newPlan(t, sleeper("a"))
	s := newSupervisor(t, plan)
	before := until(t, s.get, Status.Ready)
	require.NoError(t, s.Apply(t.Context(), plan))
	after := s.Status(t.Context(), 0, false)
	require.Equal(t, part(before, "a").PID, part(after, "a").PID)
	require.Equal(t, before.Generation, after.Generation, "`mni up` says by it that the cloud was running already")
}

func TestAStopEndsPartsInReverseOrderAndByForceIfNeeded(t *testing.T) {
	plan := newPlan(t)
	order := filepath.Join(plan.RunDir, "order")
	stopping := func(name string, after ...string) Part {
		return script(name, fmt.Sprintf("trap 'echo %s >> %s; exit 0' TERM; while :; do sleep 0.02; done", name, order), after...)
	}
	deaf := script("deaf", "trap '' TERM; while :; do sleep 0.02; done")
	deaf.StopTimeout = 50 * time.Millisecond
	plan.Parts = []Part{stopping("first"), stopping("second", "first"), stopping("third", "second"), deaf}
	s := newSupervisor(t, plan)
	status := until(t, s.get, Status.Ready)
	require.Eventually(t, func() bool { // the traps are set when the shell has started its loop
		for _, p := range status.Parts {
			children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.PID))
			if err == nil && len(children) == 0 {
				return false
			}
		}
		return true
	}, 10*time.Second, 10*time.Millisecond)
	s.Stop()
	for _, p := range status.Parts {
		require.False(t, Alive(p.PID), p.Name)
	}
	said, err := os.ReadFile(order)
	require.NoError(t, err)
	require.Equal(t, []string{"third", "second", "first"}, strings.Fields(string(said)))
}

func TestPlansThatCannotWorkAreRefused(t *testing.T) {
	for want, parts := range map[string][]Part{
		"twice":           {sleeper("a"), sleeper("a")},
		"not in the plan": {sleeper("a", "nobody")},
		"for itself":      {sleeper("a", "b"), sleeper("b", "a")},
		"absolute path":   {{Name: "a", Command: []string{"sleep"}}},
	} {
		require.ErrorContains(t, Plan{Parts: parts}.Validate(), want)
	}
}
