//go:build e2e

package e2e

import (
	"encoding/binary"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"

	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

const echoPort = 7007

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
	stop, sent, answered := make(chan struct{}), make(chan int), make(chan int)
	go func() {
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				sent <- i
				return
			case <-ticker.C:
				_, _ = conn.Write(binary.BigEndian.AppendUint64(nil, uint64(i)))
			}
		}
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
