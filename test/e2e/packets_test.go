//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

// netns opens the network namespace of a Container, seen from the machine.
func netns(t *testing.T, container *ctrv1.Container) ns.NetNS {
	t.Helper()
	id, err := in(t.Context(), container, "readlink", "/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return netnsOf(t, container.Name, strings.TrimSpace(id))
}

// podNetns is netns of a Pod with a shell.
func podNetns(t *testing.T, pod *corev1.Pod) ns.NetNS {
	t.Helper()
	id, err := inPod(t.Context(), pod, "readlink", "/proc/self/ns/net")
	if err != nil {
		t.Fatalf("%v: %s", err, id)
	}
	return netnsOf(t, pod.Name, strings.TrimSpace(id))
}

// netnsOf opens the network namespace that a link in /proc is called, by any process in it.
func netnsOf(t *testing.T, name, id string) ns.NetNS {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == id {
			opened, err := ns.GetNS(link)
			if err != nil {
				continue
			}
			t.Cleanup(func() { _ = opened.Close() })
			return opened
		}
	}
	t.Fatalf("no process is in %s of %s", id, name)
	return nil
}

// namespaceAt opens a named network namespace.
func namespaceAt(t *testing.T, name string) ns.NetNS {
	t.Helper()
	opened, err := ns.GetNS(filepath.Join("/run/netns", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return opened
}

// thisNamespace opens the machine's own network namespace.
func thisNamespace(t *testing.T) ns.NetNS {
	t.Helper()
	opened, err := ns.GetCurrentNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return opened
}

// listenIn listens on a TCP address inside a named network namespace.
func listenIn(t *testing.T, name, address string) net.Listener {
	t.Helper()
	var listener net.Listener
	err := ns.WithNetNSPath("/run/netns/"+name, func(ns.NetNS) (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", address)
		return err
	})
	if err != nil {
		t.Fatalf("listen on %s in %s: %v", address, name, err)
	}
	return listener
}

// packetSocket is a raw socket on eth0 of a Container's network namespace.
type packetSocket struct {
	fd  int
	nic *net.Interface
}

func openPacketSocket(t *testing.T, container *ctrv1.Container) packetSocket {
	t.Helper()
	var out packetSocket
	err := netns(t, container).Do(func(ns.NetNS) (err error) {
		if out.nic, err = net.InterfaceByName("eth0"); err != nil {
			return err
		}
		if out.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL))); err != nil {
			return err
		}
		return unix.Bind(out.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: out.nic.Index})
	})
	if err != nil {
		t.Fatalf("packet socket of %s: %v", container.Name, err)
	}
	t.Cleanup(func() { _ = unix.Close(out.fd) })
	return out
}

func htons(v uint16) uint16 { return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v)) }

func (s packetSocket) send(t *testing.T, frame []byte) {
	t.Helper()
	if err := unix.Sendto(s.fd, frame, 0, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_IP), Ifindex: s.nic.Index, Halen: 6}); err != nil {
		t.Fatalf("send: %v", err)
	}
}

// receives tells whether an incoming frame with the payload arrives before the timeout.
func (s packetSocket) receives(t *testing.T, payload string, timeout time.Duration) bool {
	t.Helper()
	deadline := time.Now().Add(timeout)
	buffer := make([]byte, 2048)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		interval := unix.NsecToTimeval(left.Nanoseconds())
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &interval); err != nil {
			t.Fatal(err)
		}
		n, from, err := unix.Recvfrom(s.fd, buffer, 0)
		switch link, _ := from.(*unix.SockaddrLinklayer); {
		case err == unix.EAGAIN || err == unix.EINTR:
		case err != nil:
			t.Fatal(err)
		case link != nil && link.Pkttype == unix.PACKET_OUTGOING:
		case bytes.Contains(buffer[:n], []byte(payload)):
			return true
		}
	}
}

// udp builds an Ethernet frame with a UDP datagram.
func udp(t *testing.T, srcMAC, dstMAC net.HardwareAddr, src, dst string, dport uint16, payload []byte) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: srcMAC, DstMAC: dstMAC, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.ParseIP(src), DstIP: net.ParseIP(dst)}
	l4 := &layers.UDP{SrcPort: 40000, DstPort: layers.UDPPort(dport)}
	if err := l4.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, eth, ip, l4, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// vxlan puts a frame into a VXLAN header (RFC 7348).
func vxlan(vni uint32, frame []byte) []byte {
	header := make([]byte, 8, 8+len(frame))
	header[0] = 0x08
	binary.BigEndian.PutUint32(header[4:], vni<<8)
	return append(header, frame...)
}

// gatewayMAC is the MAC address of a Container's gateway, as its neighbour cache has it after a packet to it.
func gatewayMAC(t *testing.T, container *ctrv1.Container) net.HardwareAddr {
	t.Helper()
	var mac net.HardwareAddr
	eventually(t, "the gateway is a neighbour", func(ctx context.Context) error {
		_, _ = in(ctx, container, "ping", "-c", "1", "-W", "1", "10.0.1.1")
		out, err := in(ctx, container, "ip", "neigh", "show", "10.0.1.1")
		if err != nil {
			return err
		}
		fields := strings.Fields(out)
		for i, field := range fields {
			if field == "lladdr" && i+1 < len(fields) {
				mac, err = net.ParseMAC(fields[i+1])
				return err
			}
		}
		return fmt.Errorf("neighbours: %q", out)
	})
	return mac
}
