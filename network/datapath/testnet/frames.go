package testnet

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// SendFrame sends an Ethernet frame as it is from a link of the namespace.
func (n *Namespace) SendFrame(link string, frame []byte) error {
	ifindex := n.Link(link).Attrs().Index
	return n.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifindex, Halen: 6})
	})
}

// Capture sees the frames that a link of the namespace receives.
type Capture struct{ fd int }

// Capture starts to listen on a link. Close it.
func (n *Namespace) Capture(link string) (*Capture, error) {
	ifindex := n.Link(link).Attrs().Index
	c := &Capture{}
	err := n.Do(func() error {
		var err error
		c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
		if err != nil {
			return err
		}
		return unix.Bind(c.fd, &unix.SockaddrLinklayer{Ifindex: ifindex, Protocol: htons(unix.ETH_P_ALL)})
	})
	return c, err
}

// Close stops listening.
func (c *Capture) Close() error { return unix.Close(c.fd) }

// Await returns the first received frame that contains some bytes, or an error when none has come in time.
func (c *Capture) Await(content []byte, timeout time.Duration) ([]byte, error) {
	deadline := time.Now().Add(timeout)
	buffer := make([]byte, 1<<16)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return nil, fmt.Errorf("no frame with %q came within %v", content, timeout)
		}
		wait := unix.NsecToTimeval(left.Nanoseconds())
		if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
			return nil, err
		}
		size, from, err := unix.Recvfrom(c.fd, buffer, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if bytes.Contains(buffer[:size], content) {
			return buffer[:size], nil
		}
	}
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }
