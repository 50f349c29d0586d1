package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// startGuarded starts a real supervisor and keeper over the plan.
func startGuarded(t *testing.T, plan Plan) (Guard, *Client) {
	t.Helper()
	file := filepath.Join(filepath.Dir(plan.RunDir), "plan.json")
	require.NoError(t, WritePlan(file, plan))
	guard := testGuard(file)
	require.NoError(t, guard.Start(plan, RoleSupervisor))
	return guard, NewClient(plan.Socket())
}

func (c *Client) get(ctx context.Context, above uint64) (Status, error) {
	status, err := c.Status(ctx, above, false)
	if err != nil {
		select { // it is being replaced: ask again, and not too fast
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return status, err
}

// guardPID finds the living process in a role.
func guardPID(t *testing.T, plan Plan, role Role) int {
	for _, pid := range living(t, plan.Instance) {
		if env, err := environment(pid); err == nil && env[envPart] == string(role) {
			return pid
		}
	}
	return 0
}

func awaitGuard(t *testing.T, plan Plan, role Role, not int) int {
	t.Helper()
	pid := 0
	require.Eventually(t, func() bool {
		pid = guardPID(t, plan, role)
		return pid != 0 && pid != not && Running(plan.RunDir, role)
	}, 20*time.Second, 10*time.Millisecond)
	return pid
}

func TestPartsOutliveTheirSupervisorAndTheNextOneTakesThemOver(t *testing.T) {
	plan := newPlan(t, sleeper("a"), sleeper("node-1/b", "a"))
	_, client := startGuarded(t, plan)
	before := until(t, client.get, Status.Ready)
	awaitGuard(t, plan, RoleKeeper, 0)
	first := guardPID(t, plan, RoleSupervisor)
	require.NoError(t, unix.Kill(first, unix.SIGKILL))
	awaitGuard(t, plan, RoleSupervisor, first)
	after := until(t, client.get, Status.Ready)
	for _, p := range before.Parts {
		now := part(after, p.Name)
		require.Equal(t, p.PID, now.PID, p.Name)
		require.Zero(t, now.Restarts)
		require.WithinDuration(t, p.Since, now.Since, time.Second)
	}
	require.NoError(t, unix.Kill(part(after, "a").PID, unix.SIGKILL))
	until(t, client.get, func(st Status) bool { return st.Ready() && part(st, "a").PID != part(before, "a").PID })
}

func TestASupervisorReplacesItsKeeper(t *testing.T) {
	plan := newPlan(t, sleeper("a"))
	_, client := startGuarded(t, plan)
	until(t, client.get, Status.Ready)
	keeper := awaitGuard(t, plan, RoleKeeper, 0)
	require.NoError(t, unix.Kill(keeper, unix.SIGKILL))
	awaitGuard(t, plan, RoleKeeper, keeper)
}

func TestAPartThatDiedWhileNobodyWatchedIsStarted(t *testing.T) {
	plan := newPlan(t, sleeper("a"), sleeper("b"))
	guard, client := startGuarded(t, plan)
	before := until(t, client.get, Status.Ready)
	awaitGuard(t, plan, RoleKeeper, 0)
	for _, pid := range []int{guardPID(t, plan, RoleKeeper), guardPID(t, plan, RoleSupervisor), part(before, "a").PID} {
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	}
	require.Eventually(t, func() bool { return !Running(plan.RunDir, RoleSupervisor) && !Running(plan.RunDir, RoleKeeper) },
		10*time.Second, 10*time.Millisecond)
	require.NoError(t, guard.Start(plan, RoleSupervisor))
	after := until(t, client.get, Status.Ready)
	require.NotEqual(t, part(before, "a").PID, part(after, "a").PID)
	require.Equal(t, part(before, "b").PID, part(after, "b").PID)
}

func TestAPartStartedFromAnotherPlanIsReplacedOnTakeOver(t *testing.T) {
	plan := newPlan(t, sleeper("a"))
	guard, client := startGuarded(t, plan)
	before := until(t, client.get, Status.Ready)
	awaitGuard(t, plan, RoleKeeper, 0)
	plan.Parts[0].Revision = "2"
	require.NoError(t, WritePlan(guard.PlanFile, plan))
	first := guardPID(t, plan, RoleSupervisor)
	require.NoError(t, unix.Kill(first, unix.SIGKILL))
	awaitGuard(t, plan, RoleSupervisor, first)
	until(t, client.get, func(st Status) bool { return st.Ready() && part(st, "a").PID != part(before, "a").PID })
	require.False(t, Alive(part(before, "a").PID))
}

func TestAStopEndsThePartsAndBothGuards(t *testing.T) {
	plan := newPlan(t, sleeper("a"))
	_, client := startGuarded(t, plan)
	until(t, client.get, Status.Ready)
	awaitGuard(t, plan, RoleKeeper, 0)
	require.NoError(t, client.Stop(t.Context()))
	require.Eventually(t, func() bool { return len(living(t, plan.Instance)) == 0 }, 10*time.Second, 10*time.Millisecond)
	_, err := client.Status(t.Context(), 0, false)
	require.ErrorIs(t, err, ErrNotRunning)
}

func TestASecondSupervisorLeavesTheFirstAlone(t *testing.T) {
	plan := newPlan(t, sleeper("a"))
	guard, client := startGuarded(t, plan)
	before := until(t, client.get, Status.Ready)
	first := guardPID(t, plan, RoleSupervisor)
	require.NoError(t, guard.Main(t.Context(), RoleSupervisor))
	require.Equal(t, first, guardPID(t, plan, RoleSupervisor))
	after := until(t, client.get, Status.Ready)
	require.Equal(t, part(before, "a").PID, part(after, "a").PID)
}

func TestALongLogIsRotatedUnderItsWriter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.log")
	writer, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer func() { _ = writer.Close() }()
	write := func(s string) {
		_, err := writer.WriteString(s)
		require.NoError(t, err)
	}
	for _, generation := range []string{"one", "two", "three", "four", "five"} {
		write(strings.Repeat(generation+"\n", 10))
		require.NoError(t, rotate(file, 20))
		write("after " + generation + "\n")
	}
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "after five\n", string(content))
	newest, err := os.ReadFile(file + ".1")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(newest), "after four\nfive\n"))
	require.FileExists(t, file+".3")
	require.NoFileExists(t, file+".4")
	require.NoError(t, rotate(file, 20), "a short one stays")
	require.FileExists(t, file)
}
