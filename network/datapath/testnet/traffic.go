package testnet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
)

// Timeout is how long an answer is waited for that is expected; ShortTimeout one that is not.
const (
	Timeout      = 30 * time.Second
	ShortTimeout = 300 * time.Millisecond
)

// Serve answers on a port, by TCP and UDP and at every address that the namespace has by now, with the namespace's name and the client's address
// as the server sees it ("web-1 10.0.0.5"), until the test ends.
func (n *Namespace) Serve(port int) {
	n.t.Helper()
	listener, err := n.listen(fmt.Sprintf(":%d", port))
	require.NoError(n.t, err)
	n.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, n.answer(conn.RemoteAddr()))
			_ = conn.Close()
		}
	}()
	addresses, err := n.links.AddrList(nil, netlink.FAMILY_V4)
	require.NoError(n.t, err)
	for _, address := range addresses {
		n.servePackets(fmt.Sprintf("%s:%d", address.IP, port))
	}
}

// servePackets has a socket of its own for an address, so that answers come from there.
func (n *Namespace) servePackets(address string) {
	n.t.Helper()
	packets, err := n.listenPacket(address)
	require.NoError(n.t, err)
	n.t.Cleanup(func() { _ = packets.Close() })
	go func() {
		buffer := make([]byte, 2048)
		for {
			_, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo([]byte(n.answer(from)), from)
		}
	}()
}

func (n *Namespace) answer(client net.Addr) string {
	host, _, _ := net.SplitHostPort(client.String())
	return n.name + " " + host
}

// Ask connects ("tcp" or "udp") to an address and returns who answers and whom it saw.
func (n *Namespace) Ask(network, address string, timeout time.Duration) (string, error) {
	conn, err := n.Dial(network, address, timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if network == "udp" {
		if _, err := io.WriteString(conn, "who"); err != nil {
			return "", err
		}
		buffer := make([]byte, 2048)
		size, err := conn.Read(buffer)
		return string(buffer[:size]), err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// Dial connects from the namespace. The connection, too, ends at the timeout.
func (n *Namespace) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	var conn net.Conn
	err := n.Do(func() error {
		var err error
		conn, err = (&net.Dialer{Timeout: timeout}).DialContext(context.Background(), network, address)
		return err
	})
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(timeout))
}

func (n *Namespace) listen(address string) (listener net.Listener, err error) {
	err = n.Do(func() error {
		listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp4", address)
		return err
	})
	return listener, err
}

func (n *Namespace) listenPacket(address string) (conn net.PacketConn, err error) {
	err = n.Do(func() error {
		conn, err = (&net.ListenConfig{}).ListenPacket(context.Background(), "udp4", address)
		return err
	})
	return conn, err
}

// ServeBulk takes what a TCP client sends until it is done, then sends the bytes back.
func (n *Namespace) ServeBulk(port int) {
	n.t.Helper()
	listener, err := n.listen(fmt.Sprintf(":%d", port))
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
				data, err := io.ReadAll(conn)
				if err == nil {
					_, _ = conn.Write(data)
				}
			}()
		}
	}()
}

// Bulk sends bytes to a ServeBulk and compares what comes back.
func (n *Namespace) Bulk(address string, size int) error {
	conn, err := n.Dial("tcp", address, time.Minute)
	if err != nil {
		return err
	}
	defer conn.Close()
	data := make([]byte, size)
	random := rand.NewChaCha8(sha256.Sum256([]byte(n.name)))
	_, _ = random.Read(data)
	if _, err := conn.Write(data); err != nil {
		return err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	back, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	if !bytes.Equal(data, back) {
		return fmt.Errorf("sent %d bytes and got %d others back", len(data), len(back))
	}
	return nil
}

// Stream is numbered datagrams on their way to a Serve.
type Stream struct {
	stop chan struct{}
	done chan error
}

// Stream asks an address by UDP, again and again, until it is stopped.
func (n *Namespace) Stream(address string) *Stream {
	n.t.Helper()
	conn, err := n.Dial("udp", address, time.Hour)
	require.NoError(n.t, err)
	s := &Stream{stop: make(chan struct{}), done: make(chan error, 1)}
	go func() { s.done <- s.run(conn) }()
	return s
}

func (s *Stream) run(conn net.Conn) error {
	defer conn.Close()
	buffer := make([]byte, 2048)
	for sent := 0; ; sent++ {
		if _, err := conn.Write([]byte("who")); err != nil {
			return fmt.Errorf("datagram %d: %w", sent, err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(Timeout)) // late is not lost
		if _, err := conn.Read(buffer); err != nil {
			return fmt.Errorf("datagram %d was lost: %w", sent, err)
		}
		select {
		case <-s.stop:
			return nil
		default:
		}
	}
}

// Stop ends the stream, which has sent one datagram at least, and tells whether a datagram, or the answer to one, was lost.
func (s *Stream) Stop() error {
	close(s.stop)
	return <-s.done
}
