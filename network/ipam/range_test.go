package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNetworkGatewayAndBroadcastAreNobodys(t *testing.T) {
	for _, tc := range []struct {
		cidr, gateway, first, last string
		capacity                   uint64
	}{
		{"10.0.0.0/30", "10.0.0.1", "10.0.0.2", "10.0.0.2", 1},
		{"10.0.0.16/28", "10.0.0.17", "10.0.0.18", "10.0.0.30", 13},
		{"10.0.1.0/24", "10.0.1.1", "10.0.1.2", "10.0.1.254", 253},
		{"10.0.0.0/16", "10.0.0.1", "10.0.0.2", "10.0.255.254", 65533},
		{"10.0.0.0/8", "10.0.0.1", "10.0.0.2", "10.255.255.254", 1<<24 - 3},
	} {
		r := Range{netip.MustParsePrefix(tc.cidr)}
		require.Equal(t, tc.gateway, r.Gateway().String(), tc.cidr)
		require.Equal(t, tc.first, r.First().String(), tc.cidr)
		require.Equal(t, tc.last, r.Last().String(), tc.cidr)
		require.Equal(t, tc.capacity, r.Capacity(), tc.cidr)
	}
}

func TestCandidatesAreEveryUsableAddressOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(22, 30).Draw(t, "bits")
		r := Range{netip.PrefixFrom(anAddress(t), bits).Masked()}
		seen := map[netip.Addr]bool{}
		for a := range r.Candidates(rapid.String().Draw(t, "key")) {
			if seen[a] {
				t.Fatalf("%s twice", a)
			}
			seen[a] = true
			if _, err := r.Check("s", a.String()); err != nil {
				t.Fatal(err)
			}
		}
		if uint64(len(seen)) != r.Capacity() {
			t.Fatalf("%d candidates of %d", len(seen), r.Capacity())
		}
	})
}

func TestTheSameKeyTriesTheSameAddressesInTheSameOrder(t *testing.T) {
	r := Range{netip.MustParsePrefix("10.0.0.0/24")}
	require.Equal(t, firstOf(r, "a", 300), firstOf(r, "a", 300))
	require.NotEqual(t, firstOf(r, "a", 1), firstOf(r, "b", 1))
}

func TestAThousandInterfacesAtOnceTryFewAddressesTwice(t *testing.T) {
	r := Range{netip.MustParsePrefix("10.0.0.0/17")}
	tries := map[netip.Addr]int{}
	for i := range 1000 {
		// As an API server's UIDs: alike but for some digits.
		tries[firstOf(r, fmt.Sprintf("6f1c7bd8-0000-4000-8000-%012d", i), 1)[0]]++
	}
	require.Greater(t, len(tries), 970)
}

func firstOf(r Range, key string, n int) []netip.Addr {
	var out []netip.Addr
	for a := range r.Candidates(key) {
		if len(out) == n {
			break
		}
		out = append(out, a)
	}
	return out
}

func TestAnAddressAskedForMustBeOneThatAnInterfaceCanHave(t *testing.T) {
	r := Range{netip.MustParsePrefix("10.0.1.0/28")}
	for address, problem := range map[string]string{
		"10.0.1.2":      "",
		"10.0.1.14":     "",
		"10.0.1.0":      "is the Subnet's network address",
		"10.0.1.1":      "is the Subnet's gateway",
		"10.0.1.15":     "is the Subnet's broadcast address",
		"10.0.1.16":     "is outside the Subnet",
		"10.0.0.255":    "is outside the Subnet",
		"10.0.1.02":     "is not an IPv4 address in dotted form",
		"":              "is not an IPv4 address in dotted form",
		"web":           "is not an IPv4 address in dotted form",
		"10.0.1.2/28":   "is not an IPv4 address in dotted form",
		"fd00::2":       "is not IPv4, and IPv6 is not supported yet",
		"::ffff:a00:12": "is not an IPv4 address in dotted form",
	} {
		_, err := r.Check("front", address)
		if problem == "" {
			require.NoError(t, err, address)
			continue
		}
		var invalid *InvalidAddressError
		require.True(t, errors.As(err, &invalid), address)
		require.Equal(t, problem, invalid.Problem, address)
		require.ErrorContains(t, err, "spec.address")
		require.ErrorContains(t, err, "from 10.0.1.2 to 10.0.1.14 of Subnet front")
	}
}

func TestLeaseNamesAreInjectiveAndReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vni := rapid.Uint32Range(1, 1<<24-1).Draw(t, "vni")
		address := anAddress(t)
		gotVNI, gotAddress, err := ParseLeaseName(LeaseName(vni, address))
		if err != nil || gotVNI != vni || gotAddress != address {
			t.Fatalf("%d %s became %d %s, %v", vni, address, gotVNI, gotAddress, err)
		}
	})
	require.Equal(t, "1001.10.0.0.5", LeaseName(1001, netip.MustParseAddr("10.0.0.5")))
	for _, name := range []string{"", "1001", "x.10.0.0.5", "1001.10.0.0", "99999999.10.0.0.5"} {
		_, _, err := ParseLeaseName(name)
		require.Error(t, err, name)
	}
}

func anAddress(t *rapid.T) netip.Addr {
	return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")))
}
