package agent

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAConnectionIsMadeAsSoonAsTheServerIsThereAndFailsWhenItIsSilent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	dialed := make(chan net.Conn)
	go func() {
		conn, err := Dial(t.Context(), "tcp", address)
		if err != nil {
			t.Error(err)
		}
		dialed <- conn
	}()
	select {
	case <-dialed:
		t.Fatal("connected to nobody")
	case <-time.After(2 * dialInterval):
	}
	listener, err = net.Listen("tcp", address)
	require.NoError(t, err)
	defer listener.Close()
	conn := <-dialed
	defer conn.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		timeout, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		require.NoError(t, err)
		require.Equal(t, int(silence.Milliseconds()), timeout)
	}))
}

func TestAnAttemptToConnectEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), dialInterval)
	defer cancel()
	_, err := Dial(ctx, "tcp", "127.0.0.1:1")
	require.Error(t, err)
}
