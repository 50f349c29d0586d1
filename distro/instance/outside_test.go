package instance

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPeerIsANumberAndAnAddress(t *testing.T) {
	peer, err := ParsePeer("4200000001@192.168.1.1")
	require.NoError(t, err)
	require.Equal(t, Peer{ASN: 4200000001, Address: netip.MustParseAddr("192.168.1.1")}, peer)
	require.Equal(t, "4200000001@192.168.1.1", peer.String())
	for _, bad := range []string{
		"", "65000", "@192.168.1.1", "65000@", "x@192.168.1.1", "65000@host", "0@192.168.1.1", "23456@192.168.1.1", "4294967295@192.168.1.1",
		"4294967296@192.168.1.1", "-1@192.168.1.1", "65000@fd00::1", "65000@127.0.0.1", "65000@224.0.0.1", "65000@0.0.0.0", "65000@169.254.1.1",
	} {
		_, err := ParsePeer(bad)
		require.ErrorContains(t, err, "--peer", bad)
	}
}

func TestAPoolIsACanonicalRangeThatMeetsNoReservedOne(t *testing.T) {
	reserved := []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")}
	pool, err := ParsePool("192.168.50.0/24", reserved)
	require.NoError(t, err)
	require.Equal(t, netip.MustParsePrefix("192.168.50.0/24"), pool)
	for bad, says := range map[string]string{
		"": "IPv4", "x": "IPv4", "192.168.50.0": "IPv4", "fd00::/64": "IPv4", "192.168.50.1/24": "write 192.168.50.0/24", "0.0.0.0/0": "/8",
		"198.18.3.0/24": "reserved", "198.0.0.0/8": "reserved",
	} {
		_, err := ParsePool(bad, reserved)
		require.ErrorContains(t, err, "--pool", bad)
		require.ErrorContains(t, err, says, bad)
	}
}

func TestPoolsOfInstancesAreApart(t *testing.T) {
	var pools []netip.Prefix
	for slot := range MaxSlot + 1 {
		a := Instance{Name: "x", Slot: slot}.Addresses()
		require.Equal(t, a.Pool, a.Pool.Masked())
		_, _, found := Conflict([]netip.Prefix{a.Pool}, append(pools, a.Ranges()...))
		require.False(t, found, a.Pool)
		require.True(t, a.Underlay.Contains(a.Edge))
		for _, n := range (Instance{Name: "x", Slot: slot}).Nodes(MaxNodes) {
			require.NotEqual(t, a.Edge, n.Address())
		}
		pools = append(pools, a.Pool)
	}
}
