package spawn

import (
	"os"
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
