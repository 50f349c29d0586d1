package daemon

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The traffic under which no daemon's restart or upgrade may lose a packet.
const (
	datagramsPerSecond = 1000
	connections        = 200
)

// traffic sends datagrams and talks in TCP connections until the returned function is called, which fails the test when one of them
// was lost or broke. At the address there is an answer and an echo at the port.
func (c *cloud) traffic(what string, where place, address string) (settle func()) {
	c.t.Helper()
	started := time.Now()
	count, hangUp := c.flood(where, address), c.converse(where, address)
	return func() {
		c.t.Helper()
		answers, err := hangUp()
		seconds := time.Since(started).Seconds()
		sent, received := count()
		require.NoError(c.t, err, "connections %s", what)
		require.Equal(c.t, sent, received, "datagrams and their answers, %s", what)
		require.GreaterOrEqual(c.t, float64(sent), 0.9*datagramsPerSecond*seconds, "datagrams in %.1f s, %s", seconds, what)
		c.t.Logf("%s: %d datagrams in %.1f s, all answered; %d answers in %d connections", what, sent, seconds, answers, connections)
	}
}

// flood sends numbered datagrams until the returned function is called, which says how many were sent and answered. What it could
// not send in time it sends as soon as it can.
func (c *cloud) flood(where place, address string) func() (sent, received int) {
	var conn net.Conn
	where(func() {
		var err error
		conn, err = net.Dial("udp4", net.JoinHostPort(address, strconv.Itoa(port)))
		require.NoError(c.t, err)
	})
	c.buffer(conn.(*net.UDPConn))
	stop, sent, received := make(chan struct{}), make(chan int), make(chan int)
	go func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		i := 0
		for started := time.Now(); ; <-ticker.C {
			select {
			case <-stop:
				sent <- i
				return
			default:
			}
			for due := int(time.Since(started).Seconds() * datagramsPerSecond); i < due; i++ {
				_, _ = fmt.Fprint(conn, i)
			}
		}
	}()
	go func() {
		seen := map[string]bool{}
		buffer := make([]byte, 2000)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				received <- len(seen)
				return
			}
			_, number, _ := strings.Cut(string(buffer[:n]), ": ")
			seen[number] = true
		}
	}()
	return func() (int, int) {
		close(stop)
		n := <-sent
		_ = conn.SetReadDeadline(time.Now().Add(time.Second)) // what is on the way
		defer conn.Close()
		return n, <-received
	}
}

// buffer lets a socket hold what comes while its reader has no processor: the tests are about what the network loses.
func (c *cloud) buffer(conn *net.UDPConn) {
	raw, err := conn.SyscallConn()
	require.NoError(c.t, err)
	var failed error
	require.NoError(c.t, raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) }))
	require.NoError(c.t, failed)
}

// converse opens TCP connections to an echo and asks in each, again and again, until the returned function is called. That says how
// many answers came, and what went wrong: a connection that was reset, or an answer that did not come.
func (c *cloud) converse(where place, address string) (hangUp func() (answers int, err error)) {
	c.t.Helper()
	done := make(chan struct{})
	var all sync.WaitGroup
	counts, errs := make([]int, connections), make([]error, connections)
	for i := range connections {
		conn, err := c.connect(where, address, port)
		require.NoError(c.t, err)
		all.Go(func() { counts[i], errs[i] = askAndHear(conn, done) })
	}
	return func() (int, error) {
		close(done)
		all.Wait()
		answers := 0
		for _, count := range counts {
			answers += count
		}
		return answers, errors.Join(errs...)
	}
}

// askAndHear asks and reads the answer until done.
func askAndHear(conn net.Conn, done <-chan struct{}) (answers int, err error) {
	defer conn.Close()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	heard := make([]byte, 8)
	for ; ; answers++ {
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(answers))); err != nil {
			return answers, fmt.Errorf("question %d: %w", answers, err)
		}
		if _, err := io.ReadFull(conn, heard); err != nil {
			return answers, fmt.Errorf("answer %d: %w", answers, err)
		}
		if to := binary.BigEndian.Uint64(heard); to != uint64(answers) {
			return answers, fmt.Errorf("answer %d: it is to question %d", answers, to)
		}
		select {
		case <-done:
			return answers + 1, nil
		case <-ticker.C:
		}
	}
}
