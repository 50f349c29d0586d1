package supervisor

import (
	"net"
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestWhoMayNotAskTheSupervisorIsNotToldThatItDoesNotRun(t *testing.T) {
	dialing := func(number unix.Errno) error {
		return &url.Error{Op: "Get", URL: "http://supervisor/status", Err: &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", number)}}
	}
	err := unanswered(dialing(unix.EACCES))
	require.NotErrorIs(t, err, ErrNotRunning)
	require.ErrorContains(t, err, "only root may ask the supervisor: run it with sudo")
	require.ErrorIs(t, unanswered(dialing(unix.ENOENT)), ErrNotRunning)
	require.ErrorIs(t, unanswered(dialing(unix.ECONNREFUSED)), ErrNotRunning)
}
