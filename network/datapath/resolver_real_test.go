package datapath

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// The host sees by which infrastructure address it is asked; tenants of one address see it under one address.
func TestRealResolver(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		for _, n := range r.nodes {
			n.AddAddress("h0", resolver+"/32")
		}
		t.Log("nothing listens yet: a datagram is not refused, so that who asks tries again")
		_, err := r.a1.Ask("udp", resolver+":53", testnet.ShortTimeout)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		_, err = r.a1.Ask("tcp", resolver+":53", testnet.Timeout)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		for _, n := range r.nodes {
			n.Serve(53)
			n.Serve(54)
		}
		first, second := r.nodes[0].Name(), r.nodes[1].Name()
		r.answers(r.a1.Namespace, resolver+":53", first, "198.18.0.51")
		r.answers(r.b1.Namespace, resolver+":53", first, "198.18.0.52")
		r.answers(r.a2.Namespace, resolver+":53", second, "198.18.0.53")
		r.silence(r.a1.Namespace, resolver+":54")
		for _, n := range r.nodes { // what else the host serves
			r.silence(r.a1.Namespace, n.Address.String()+":53")
		}
	})
}
