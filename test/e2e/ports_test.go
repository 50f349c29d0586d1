//go:build e2e

package e2e

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

// sender is a port of one of the Containers of a test, as its datagrams say.
type sender struct{ container, port uint16 }

// payloadSize is that of a datagram: sender and round.
const payloadSize = 8

// much holds all that a test has under way at once, in bytes.
const much = 64 << 20

// ports sends from whatever ports of a Container's address, and notes which are answered. There is one raw socket: one for each port of a hundred thousand
// would be too many.
type ports struct {
	container uint16
	fd        int
	packet    []byte

	mu sync.Mutex
	// answered is the last round in which a port was answered.
	answered [1 << 16]uint32
	// wrong is what arrived and is another's.
	wrong []string
}

// openPorts opens a Container's ports. container is its number in the datagrams.
func openPorts(t *testing.T, container *ctrv1.Container, number uint16) *ports {
	t.Helper()
	p := &ports{container: number, packet: make([]byte, 20+8+payloadSize)}
	var conn *net.IPConn
	if err := netns(t, container).Do(func(ns.NetNS) (err error) {
		if p.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			return err
		}
		conn, err = net.ListenIP("ip4:udp", &net.IPAddr{IP: net.ParseIP(container.Status.Address)})
		return err
	}); err != nil {
		t.Fatalf("open the ports of %s: %v", container.Name, err)
	}
	t.Cleanup(func() { _, _ = conn.Close(), unix.Close(p.fd) })
	holdMuch(t, conn)
	p.packet[0], p.packet[8], p.packet[9] = 0x45, 64, unix.IPPROTO_UDP // the kernel fills in the rest of the IP header; without a UDP checksum
	binary.BigEndian.PutUint16(p.packet[24:], 8+payloadSize)
	binary.BigEndian.PutUint16(p.packet[28:], number)
	go func() {
		buffer := make([]byte, 128)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			if n > 0 && buffer[0]>>4 == 4 { // the IP header
				header := int(buffer[0]&0xf) * 4
				n = copy(buffer, buffer[min(header, n):n])
			}
			if n == 8+payloadSize {
				p.hear(buffer[:n])
			}
		}
	}()
	return p
}

// holdMuch gives a socket a buffer in which all fits.
func holdMuch(t *testing.T, conn syscall.Conn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err == nil {
		var setErr error
		if err = raw.Control(func(fd uintptr) { setErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, much) }); err == nil {
			err = setErr
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// hear notes an answer: a UDP header and what it says.
func (p *ports) hear(datagram []byte) {
	at, from, round := binary.BigEndian.Uint16(datagram[2:]), senderIn(datagram[8:]), binary.BigEndian.Uint32(datagram[12:])
	p.mu.Lock()
	defer p.mu.Unlock()
	if (from != sender{p.container, at}) {
		p.wrong = append(p.wrong, fmt.Sprintf("port %d of container %d got what is for port %d of container %d", at, p.container, from.port, from.container))
		return
	}
	p.answered[at] = max(p.answered[at], round)
}

func senderIn(payload []byte) sender {
	return sender{binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:])}
}

// send sends from a port. It is for one goroutine at a time.
func (p *ports) send(port uint16, to netip.AddrPort, round uint32) error {
	remote := &unix.SockaddrInet4{Addr: to.Addr().As4()}
	copy(p.packet[16:], remote.Addr[:])
	binary.BigEndian.PutUint16(p.packet[20:], port)
	binary.BigEndian.PutUint16(p.packet[22:], to.Port())
	binary.BigEndian.PutUint16(p.packet[30:], port)
	binary.BigEndian.PutUint32(p.packet[32:], round)
	for {
		err := unix.Sendto(p.fd, p.packet, 0, remote)
		if err != unix.EINTR {
			return err
		}
	}
}

// count is how many ports from first on, before the last, have been answered in a round or later.
func (p *ports) count(first, last int, round uint32) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for port := first; port < last; port++ {
		if p.answered[port] >= round {
			n++
		}
	}
	return n
}

func (p *ports) has(port int, round uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answered[port] >= round
}

func (p *ports) confusions() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrong
}

// ledger is a server outside that answers each datagram with what it says, and notes from where each sender came.
type ledger struct {
	at netip.AddrPort

	mu      sync.Mutex
	holders map[netip.AddrPort]sender
	places  map[sender]netip.AddrPort
	// wrong are senders that came from two places, and places from which two came.
	wrong []string
}

// openLedger starts a ledger at the echo's port of the outside's server.
func openLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{
		at:      netip.AddrPortFrom(netip.MustParseAddr(outsideServer), echoPort),
		holders: map[netip.AddrPort]sender{}, places: map[sender]netip.AddrPort{},
	}
	var conn *net.UDPConn
	if err := namespaceAt(t, outsideNetns).Do(func(ns.NetNS) (err error) {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(l.at))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	holdMuch(t, conn)
	go func() {
		buffer := make([]byte, 128)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if n != payloadSize {
				continue
			}
			l.note(senderIn(buffer), netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
			_, _ = conn.WriteToUDPAddrPort(buffer[:n], from)
		}
	}()
	return l
}

func (l *ledger) note(who sender, from netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, taken := l.holders[from]; taken && other != who {
		l.wrong = append(l.wrong, fmt.Sprintf("%v and %v came from %s", other, who, from))
	}
	if other, known := l.places[who]; known && other != from {
		l.wrong = append(l.wrong, fmt.Sprintf("%v came from %s and from %s", who, other, from))
	}
	l.holders[from], l.places[who] = who, from
}

// seen is how many places somebody came from, their addresses, and what was wrong.
func (l *ledger) seen() (places int, addresses map[string]bool, wrong []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	addresses = map[string]bool{}
	for at := range l.holders {
		addresses[at.Addr().String()] = true
	}
	return len(l.holders), addresses, l.wrong
}

// within waits for what should come at once, and tells whether it did.
func within(limit time.Duration, done func() bool) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); time.Now().Before(end); <-tick.C {
		if done() {
			return true
		}
	}
	return done()
}
