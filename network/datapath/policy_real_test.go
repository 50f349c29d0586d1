package datapath

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// setPolicies gives an interface policies; nil is none.
func (r *reality) setPolicies(n *realNode, p *realPod, ingress, egress *Policy) {
	number := func(policy *Policy) PolicyID {
		if policy == nil {
			return PolicyNone
		}
		id, err := n.Policies.Number(*policy)
		require.NoError(r.t, err)
		return id
	}
	p.nic.IngressPolicy, p.nic.EgressPolicy = number(ingress), number(egress)
	require.NoError(r.t, n.NICs.Set(uint32(p.ifindex()), p.nic))
}

func TestRealPolicies(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		first, second := r.nodes[0], r.nodes[1]
		both := []Ports{port(TCP, 8080), port(UDP, 8080), port(TCP, 9090)}
		r.setPolicies(second, r.a2, policy(Rule{from("10.0.1.11/32"), both}), policy())
		r.answers(r.a1.Namespace, "10.0.1.12:8080", "a2", "10.0.1.11")
		r.silence(r.a3.Namespace, "10.0.1.12:8080")
		r.silence(r.a4.Namespace, "10.0.1.12:8080")
		r.silence(r.a2.Namespace, "10.0.1.11:8080")
		r.answers(r.b1.Namespace, "10.0.1.12:8080", "b2", "10.0.1.11") // the same addresses, another VPC
		require.NoError(t, r.a1.Bulk("10.0.1.12:9090", 4<<20))

		// A datagram in fragments arrives, and so does its answer.
		conn, err := r.a1.Dial("udp", "10.0.1.12:8080", testnet.Timeout)
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write(make([]byte, 4000))
		require.NoError(t, err)
		answer := make([]byte, 100)
		n, err := conn.Read(answer)
		require.NoError(t, err)
		require.Equal(t, "a2 10.0.1.11", string(answer[:n]))

		// An error about what it sent reaches an interface that lets nothing in.
		r.setPolicies(first, r.a1, policy(), nil)
		r.setPolicies(second, r.a2, policy(Rule{}), nil)
		refused, err := r.a1.Dial("udp", "10.0.1.12:7777", testnet.Timeout)
		require.NoError(t, err)
		defer refused.Close()
		_, err = refused.Write([]byte("anyone?"))
		require.NoError(t, err)
		_, err = refused.Read(answer)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		r.silence(r.a2.Namespace, "10.0.1.11:8080")
		require.Positive(t, r.dropped(r.a1, bpfDropReasonDROP_POLICY_INGRESS))

		// Through a Service: the client's policy sees the backend, the backend's the client.
		for _, n := range r.nodes {
			require.NoError(t, n.Services.Set(ServiceKey{1, addr("198.19.0.10"), 80, TCP}, Service{Backends: []Backend{{addr("198.18.0.12"), 9090}}}))
		}
		r.setPolicies(first, r.web1, policy(), policy(Rule{from("198.18.0.12/32"), []Ports{port(TCP, 9090)}}))
		r.setPolicies(second, r.web2, policy(Rule{from("198.18.0.11/32"), []Ports{port(TCP, 9090)}}), policy())
		require.NoError(t, r.web1.Bulk("198.19.0.10:80", 1<<20))
		r.silence(r.neighbor.Namespace, "198.18.0.12:8080")
		r.answers(second.Namespace, "198.18.0.12:8080", "web2", "192.0.2.2") // the kubelet
		r.silence(first.Namespace, "198.18.0.12:8080")
	})
}

func TestARealConnectionIsCutAndAnotherGoesOn(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		second := r.nodes[1]
		all, web := Rule{from("10.0.0.0/8"), []Ports{port(TCP, 9090)}}, Rule{from("10.0.1.11/32"), nil}
		r.setPolicies(second, r.a2, policy(all), nil)
		stays, err := r.a1.Dial("tcp", "10.0.1.12:9090", testnet.Timeout)
		require.NoError(t, err)
		defer stays.Close()
		goes, err := r.a3.Dial("tcp", "10.0.1.12:9090", testnet.Timeout)
		require.NoError(t, err)
		defer goes.Close()
		for _, conn := range []io.Writer{stays, goes} {
			_, err = io.WriteString(conn, "before ")
			require.NoError(t, err)
		}
		r.silence(r.a1.Namespace, "10.0.1.12:8080")

		r.setPolicies(second, r.a2, policy(web), nil)
		stream := r.a1.Stream("10.0.1.12:8080")
		for range 3 { // each is another policy, none of which may lose a datagram
			r.setPolicies(second, r.a2, policy(web, all), nil)
			r.setPolicies(second, r.a2, policy(web), nil)
			collect(t, second)
		}
		require.NoError(t, stream.Stop())
		for _, conn := range []net.Conn{stays, goes} {
			_, err := io.WriteString(conn, "and after")
			require.NoError(t, err)
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		}
		back, err := io.ReadAll(stays)
		require.NoError(t, err)
		require.Equal(t, "before and after", string(back))
		require.NoError(t, goes.SetReadDeadline(time.Now().Add(testnet.ShortTimeout)))
		_, err = io.ReadAll(goes)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Positive(t, r.dropped(r.a2, bpfDropReasonDROP_POLICY_INGRESS))
	})
}

// collect removes the policies that no interface of a node has.
func collect(t testing.TB, n *realNode) {
	nics, err := n.NICs.List()
	require.NoError(t, err)
	used := map[PolicyID]bool{}
	for _, nic := range nics {
		used[nic.IngressPolicy], used[nic.EgressPolicy] = true, true
	}
	_, err = n.Policies.Collect(used)
	require.NoError(t, err)
}
