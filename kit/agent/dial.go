// Package agent is what the daemons of a node have in common: how they connect to the API server, wait for it, and say how they
// are. In comes a configuration; out come connections that notice a silent server, and an HTTP server for metrics and health.
package agent

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dialTimeout bounds one attempt to connect to the API server, dialInterval is the pause before the next.
	dialTimeout  = 2 * time.Second
	dialInterval = 200 * time.Millisecond
	// silence is how long a connection's other end may leave what was sent, or a probe, without acknowledgement.
	silence = 10 * time.Second
)

// Dial connects to the API server and tries until it answers or ctx ends. A watch that waits here goes on as soon as the
// server can be reached again; between attempts of its own it would pause for up to half a minute. A connection to a server
// that was cut off fails after silence, not after TCP's quarter of an hour.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence / 2, Interval: silence / 5, Count: 3},
		Control: func(_, _ string, raw syscall.RawConn) error {
			var option error
			err := raw.Control(func(fd uintptr) {
				option = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
			})
			if err != nil {
				return err
			}
			return option
		},
	}
	for {
		conn, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(dialInterval):
		}
	}
}
