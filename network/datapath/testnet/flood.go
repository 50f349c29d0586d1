package testnet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ServeEcho sends back what it is sent, by TCP and by UDP, until the test ends. Datagrams come back from the namespace's address
// that they were sent to when it is the only one, or the one given.
func (n *Namespace) ServeEcho(address string, port int) {
	n.t.Helper()
	listener, err := n.listen(fmt.Sprintf("%s:%d", address, port))
	require.NoError(n.t, err)
	n.t.Cleanup(func() { _ = listener.Close() })
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
	packets, err := n.listenPacket(fmt.Sprintf("%s:%d", address, port))
	require.NoError(n.t, err)
	n.t.Cleanup(func() { _ = packets.Close() })
	require.NoError(n.t, buffer(packets))
	go func() {
		data := make([]byte, 1<<16)
		for {
			size, from, err := packets.ReadFrom(data)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo(data[:size], from)
		}
	}()
}

// Echo sends one datagram of a size to a ServeEcho and says in what way it did not come back as it was.
func (n *Namespace) Echo(address string, size int) error {
	n.t.Helper()
	conn, err := n.Dial("udp", address, Timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	sent, got := make([]byte, size), make([]byte, 1<<16)
	for i := range sent {
		sent[i] = byte(i * 7)
	}
	if _, err := conn.Write(sent); err != nil {
		return err
	}
	length, err := conn.Read(got)
	if err != nil {
		return err
	}
	if !bytes.Equal(sent, got[:length]) {
		return fmt.Errorf("%d bytes came back changed, or as %d", size, length)
	}
	return nil
}

// buffer lets a socket hold what comes while its reader has no processor.
func buffer(conn any) error {
	udp, ok := conn.(*net.UDPConn)
	if !ok {
		return fmt.Errorf("%T has no socket", conn)
	}
	raw, err := udp.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) })
	return errors.Join(err, failed)
}

// Flood sends numbered datagrams to a ServeEcho, so many a second, until the returned function is called. That says how many were
// sent and which of them were not answered.
func (n *Namespace) Flood(address string, rate int) (count func() (sent int, lost []int)) {
	n.t.Helper()
	conn, err := n.Dial("udp", address, time.Hour)
	require.NoError(n.t, err)
	require.NoError(n.t, buffer(conn))
	stop, sent, received := make(chan struct{}), make(chan int), make(chan map[uint64]bool)
	go func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		number := uint64(0)
		for begin := time.Now(); ; <-ticker.C {
			select {
			case <-stop:
				sent <- int(number)
				return
			default:
			}
			for due := uint64(time.Since(begin).Seconds() * float64(rate)); number < due; number++ {
				_, _ = conn.Write(binary.BigEndian.AppendUint64(nil, number))
			}
		}
	}()
	go func() {
		seen := map[uint64]bool{}
		data := make([]byte, 64)
		for {
			size, err := conn.Read(data)
			if err != nil {
				received <- seen
				return
			}
			if size == 8 {
				seen[binary.BigEndian.Uint64(data)] = true
			}
		}
	}()
	return func() (int, []int) {
		close(stop)
		total := <-sent
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second)) // what is on the way
		defer conn.Close()
		seen := <-received
		var lost []int
		for i := range total {
			if !seen[uint64(i)] {
				lost = append(lost, i)
			}
		}
		return total, lost
	}
}

// Connections opens TCP connections to a ServeEcho and asks in each, again and again, until the returned function is called. That
// says how many answers came, and what went wrong: a connection that was reset, or an answer that did not come.
func (n *Namespace) Connections(address string, connections int) (stop func() (answers int, err error)) {
	n.t.Helper()
	done := make(chan struct{})
	var all sync.WaitGroup
	counts, errs := make([]int, connections), make([]error, connections)
	for i := range connections {
		conn, err := n.Dial("tcp", address, Timeout)
		require.NoError(n.t, err)
		require.NoError(n.t, conn.SetDeadline(time.Time{}))
		all.Go(func() {
			defer conn.Close()
			counts[i], errs[i] = converse(conn, done)
		})
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

// converse asks and reads the answer until done.
func converse(conn net.Conn, done <-chan struct{}) (answers int, err error) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	data := make([]byte, 8)
	for ; ; answers++ {
		if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(answers))); err != nil {
			return answers, fmt.Errorf("question %d: %w", answers, err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(Timeout))
		if _, err := io.ReadFull(conn, data); err != nil {
			return answers, fmt.Errorf("answer %d: %w", answers, err)
		}
		if got := binary.BigEndian.Uint64(data); got != uint64(answers) {
			return answers, fmt.Errorf("answer %d: it is to question %d", answers, got)
		}
		select {
		case <-done:
			return answers + 1, nil
		case <-ticker.C:
		}
	}
}
