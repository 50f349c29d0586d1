package spawn

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// /proc/PID tells of the first thread: were it used, the process would seem to be in the place, and be ended with it.
func TestTheFirstThreadOfAProcessIsNeverUsed(t *testing.T) {
	for range 200 {
		require.NoError(t, Run(Place{}, func() error {
			require.NotEqual(t, os.Getpid(), unix.Gettid())
			return nil
		}))
	}
}

func TestAPriorityIsTheStartedProcessesAlone(t *testing.T) {
	out, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "nice")
	cmd.Stdout = out
	require.NoError(t, Start(Place{Nice: -3}, cmd))
	require.NoError(t, cmd.Wait())
	said, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	require.Equal(t, "-3\n", string(said), "nice(1) tells its own")

	tasks, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		require.NoError(t, err)
		priority, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		require.NoError(t, err)
		require.Equal(t, 20, priority, "the system call's 20 is nice 0; thread %d", tid)
	}
}
