package controller

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAConfigurationSaysWhatIsWrongWithIt(t *testing.T) {
	for cidr, problem := range map[string]string{
		"198.18.0.0/17": "",
		"198.18.0.1/17": "write 198.18.0.0/17",
		"fd00::/64":     "is not IPv4",
		"198.0.0.0/7":   "must be between /8 and /30",
		"198.18.0.0/31": "must be between /8 and /30",
	} {
		_, err := Config{InfrastructureCIDR: prefix(cidr)}.complete()
		if problem == "" {
			require.NoError(t, err, cidr)
		} else {
			require.ErrorContains(t, err, problem, cidr)
		}
	}
	_, err := Config{}.complete()
	require.ErrorContains(t, err, "infrastructure CIDR is missing")
	_, err = Config{InfrastructureCIDR: prefix("198.18.0.0/17"), ReservedCIDRs: []netip.Prefix{{}}}.complete()
	require.ErrorContains(t, err, "reserved CIDRs")
}

func TestTheCloudsOwnRangesAreReserved(t *testing.T) {
	config := testConfig()
	for _, cidr := range []string{
		"198.18.0.0/24", "198.19.0.0/24", "198.0.0.0/8", "169.254.1.0/24", "192.0.2.128/25", "127.0.0.0/24", "0.0.0.0/8", "224.0.0.0/24",
		"240.0.0.0/8", "100.64.0.0/10", "100.100.0.0/24",
	} {
		_, meets := config.reservedBy(prefix(cidr))
		require.True(t, meets, cidr)
	}
	for _, cidr := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.0.0.0/10", "198.20.0.0/16", "192.0.3.0/24", "223.0.0.0/8"} {
		_, meets := config.reservedBy(prefix(cidr))
		require.False(t, meets, cidr)
	}
}

func TestTheInfrastructureRangeIsReservedWhateverTheListSays(t *testing.T) {
	config, err := Config{InfrastructureCIDR: prefix("172.20.0.0/16"), ReservedCIDRs: []netip.Prefix{prefix("192.168.1.0/24")}}.complete()
	require.NoError(t, err)
	for cidr, want := range map[string]bool{"172.20.3.0/24": true, "192.168.0.0/16": true, "198.18.0.0/24": false} {
		_, meets := config.reservedBy(prefix(cidr))
		require.Equal(t, want, meets, cidr)
	}
}
