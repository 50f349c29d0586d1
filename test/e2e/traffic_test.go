//go:build e2e

package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"

	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

const (
	echoPort = 7007
	// burst is how many datagrams a flood that is late sends at once.
	burst = 32
)

// echo answers datagrams in a Container's network namespace with what they say.
func echo(t *testing.T, container *ctrv1.Container) {
	t.Helper()
	echoAt(t, netns(t, container))
}

// echoAt answers datagrams in a network namespace with what they say.
func echoAt(t *testing.T, where ns.NetNS) {
	t.Helper()
	var conn net.PacketConn
	if err := where.Do(func(ns.NetNS) (err error) {
		conn, err = (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", ":"+strconv.Itoa(echoPort))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	holdMuch(t, conn.(*net.UDPConn))
	go func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(buffer[:n], from)
		}
	}()
}

// flood sends 1,000 numbered datagrams a second from one Container to another's echo until count is called, which says how
// many were sent and how many answered.
func flood(t *testing.T, from, to *ctrv1.Container) (count func() (sent, answered int)) {
	t.Helper()
	return floodFrom(t, netns(t, from), to.Status.Address, time.Millisecond)
}

// floodFrom is flood from a network namespace to the echo at an address, with a pause between two datagrams.
func floodFrom(t *testing.T, where ns.NetNS, address string, pause time.Duration) (count func() (sent, answered int)) {
	t.Helper()
	var conn net.Conn
	if err := where.Do(func(ns.NetNS) (err error) {
		conn, err = (&net.Dialer{}).DialContext(t.Context(), "udp4", net.JoinHostPort(address, strconv.Itoa(echoPort)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	holdMuch(t, conn.(*net.UDPConn)) // what is answered while this process waits for a processor
	stop, sent, answered := make(chan struct{}), make(chan int), make(chan int)
	go func() {
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		started, end := time.Now(), -1
		for i := 0; end < 0 || i < end; {
			select {
			case <-stop:
				stop, end = nil, int(time.Since(started)/pause)
			case now := <-ticker.C:
				due := int(now.Sub(started) / pause) // a loaded machine misses ticks
				if end >= 0 {
					due = end
				}
				for last := min(due, i+burst); i < last; i++ {
					_, _ = conn.Write(binary.BigEndian.AppendUint64(nil, uint64(i)))
				}
			}
		}
		sent <- end
	}()
	go func() {
		seen := map[uint64]bool{}
		buffer := make([]byte, 64)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				answered <- len(seen)
				return
			}
			if n == 8 {
				seen[binary.BigEndian.Uint64(buffer)] = true
			}
		}
	}()
	return func() (int, int) {
		close(stop)
		n := <-sent
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second)) // what is on the way
		return n, <-answered
	}
}

const (
	// connections are how many TCP connections there are from one Container to another.
	connections = 200
	talkPort    = 7008
	// turn is how long a connection's end waits before it says the next thing.
	turn = 200 * time.Millisecond
)

// talk is TCP connections at which one end says numbers and the other says them back.
type talk struct {
	mu     sync.Mutex
	rounds []int // by connection
	failed error
}

// talkTo opens n connections from one Container to another, which talk until the test ends or one of them fails.
func talkTo(t *testing.T, from, to *ctrv1.Container, n int) *talk {
	t.Helper()
	var listener net.Listener
	if err := netns(t, to).Do(func(ns.NetNS) (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", ":"+strconv.Itoa(talkPort))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	all := &talk{rounds: make([]int, n)}
	inside := netns(t, from)
	for i := range n {
		var conn net.Conn
		if err := inside.Do(func(ns.NetNS) (err error) {
			conn, err = (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp4", net.JoinHostPort(to.Status.Address, strconv.Itoa(talkPort)))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		go all.converse(t.Context(), i, conn)
	}
	return all
}

func (all *talk) converse(ctx context.Context, i int, conn net.Conn) {
	ticker := time.NewTicker(turn)
	defer ticker.Stop()
	buffer := make([]byte, 8)
	for round := uint64(0); ; round++ {
		_, err := conn.Write(binary.BigEndian.AppendUint64(nil, round))
		if err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			_, err = io.ReadFull(conn, buffer)
		}
		if err == nil && binary.BigEndian.Uint64(buffer) != round {
			err = fmt.Errorf("%x came back for round %d", buffer, round)
		}
		if ctx.Err() != nil {
			return
		}
		all.mu.Lock()
		if all.rounds[i]++; err != nil && all.failed == nil {
			all.failed = fmt.Errorf("connection %d in round %d: %w", i, round, err)
		}
		all.mu.Unlock()
		if err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// alive waits until each connection has been answered twice from now on: by then what it said before was.
func (all *talk) alive(t *testing.T) error {
	t.Helper()
	all.mu.Lock()
	before := slices.Clone(all.rounds)
	all.mu.Unlock()
	var failed error
	eventually(t, "every connection is answered", func(context.Context) error {
		all.mu.Lock()
		defer all.mu.Unlock()
		if failed = all.failed; failed != nil {
			return nil
		}
		for i, rounds := range all.rounds {
			if rounds < before[i]+2 {
				return fmt.Errorf("connection %d was answered %d times", i, rounds-before[i])
			}
		}
		return nil
	})
	return failed
}
