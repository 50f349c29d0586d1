package datapath

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// https://github.com/cilium/cilium/issues/29583
func TestAPodWithATooLargeMTUFindsThePathsMTU(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		for _, p := range []*realPod{r.a1, r.a2, r.a4, r.b1} {
			require.NoError(t, p.Links().LinkSetMTU(p.Link("eth0"), 9000))
		}
		t.Log("TCP: across nodes, across Subnets, to a host's question")
		require.NoError(t, r.a1.Bulk("10.0.1.12:9090", 1<<20))
		require.NoError(t, r.a1.Bulk("10.0.2.12:9090", 1<<20))
		require.NoError(t, r.nodes[1].Bulk("198.18.0.52:9090", 1<<20))
		t.Log("UDP: the first datagram teaches the socket")
		conn, err := r.a1.Dial("udp", "10.0.1.12:8081", testnet.Timeout)
		require.NoError(t, err)
		defer conn.Close()
		raw, err := conn.(*net.UDPConn).SyscallConn()
		require.NoError(t, err)
		option := func(f func(fd int) error) error {
			var failed error
			require.NoError(t, raw.Control(func(fd uintptr) { failed = f(int(fd)) }))
			return failed
		}
		require.NoError(t, option(func(fd int) error {
			return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		}))
		require.NoError(t, r.a1.Do(func() error { // forget what TCP has learned
			return r.a1.Links().LinkSetMTU(r.a1.Link("eth0"), 8000)
		}))
		require.Eventually(t, func() bool {
			_, _ = conn.Write(make([]byte, 4000))
			var mtu int
			require.NoError(t, option(func(fd int) (err error) {
				mtu, err = unix.GetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU)
				return err
			}))
			return mtu == 1450
		}, testnet.Timeout, time.Millisecond)
		_, err = conn.Write(make([]byte, 4000))
		require.ErrorIs(t, err, syscall.EMSGSIZE)
	})
}

func TestWhatNobodyServesIsRefusedAtOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		for _, n := range r.nodes {
			require.NoError(t, n.Services.Set(ServiceKey{7, addr("198.19.0.20"), 80, TCP}, Service{}))
			require.NoError(t, n.Services.Set(ServiceKey{7, addr("198.19.0.20"), 80, UDP}, Service{}))
		}
		for _, from := range []*testnet.Namespace{r.web1.Namespace, r.a1.Namespace, r.nodes[0].Namespace} {
			for _, network := range []string{"tcp", "udp"} {
				start := time.Now()
				_, err := from.Ask(network, "198.19.0.20:80", testnet.Timeout)
				require.ErrorIs(t, err, syscall.ECONNREFUSED, "%s from %s", network, from.Name())
				require.Less(t, time.Since(start), testnet.Timeout/3)
			}
		}
	})
}

func TestRealServicesOfTenants(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		for at, backend := range map[string]string{"198.19.0.30": "10.0.1.12", "198.19.0.31": "10.0.1.11", "198.19.0.32": "10.0.2.11", "198.19.0.33": "10.0.2.12"} {
			for _, n := range r.nodes {
				for _, protocol := range []Protocol{TCP, UDP} {
					require.NoError(t, n.Services.Set(ServiceKey{7, addr(at), 80, protocol}, Service{Backends: []Backend{{addr(backend), 8080}}}))
					require.NoError(t, n.Services.Set(ServiceKey{8, addr("198.19.0.30"), 80, protocol}, Service{Backends: []Backend{{addr("10.0.1.12"), 8080}}}))
				}
				require.NoError(t, n.Services.Set(ServiceKey{7, addr("198.19.0.33"), 81, TCP}, Service{Backends: []Backend{{addr("10.0.2.12"), 9090}}}))
			}
		}
		r.answers(r.a1.Namespace, "198.19.0.30:80", "a2", "10.0.1.11")
		r.answers(r.b1.Namespace, "198.19.0.30:80", "b2", "10.0.1.11")
		r.answers(r.a1.Namespace, "198.19.0.31:80", "a1", "169.254.0.1") // itself
		r.answers(r.a1.Namespace, "198.19.0.32:80", "a3", "10.0.1.11")
		r.answers(r.a1.Namespace, "198.19.0.33:80", "a4", "10.0.1.11")
		r.answers(r.a2.Namespace, "198.19.0.32:80", "a3", "10.0.1.12")
		require.NoError(t, r.a1.Bulk("198.19.0.33:81", 4<<20))
		for _, from := range []*testnet.Namespace{r.b1.Namespace, r.web1.Namespace, r.nodes[0].Namespace} {
			_, err := from.Ask("tcp", "198.19.0.33:80", testnet.Timeout)
			require.ErrorIs(t, err, syscall.ECONNREFUSED, "from %s", from.Name())
		}
	})
}
