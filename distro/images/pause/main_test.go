package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChildrenThatEndedAreReapedUntilATermination(t *testing.T) {
	ended := make(chan os.Signal, 8)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	var pids []int
	for range 3 {
		child := exec.Command("/bin/true")
		require.NoError(t, child.Start())
		pids = append(pids, child.Process.Pid)
		<-ended
	}

	signals := make(chan os.Signal, 3)
	signals <- syscall.SIGCHLD
	signals <- syscall.SIGTERM
	run(signals, reap)

	for _, pid := range pids {
		_, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		require.True(t, errors.Is(err, syscall.ECHILD), "child %d is left as a zombie: %v", pid, err)
	}
}
