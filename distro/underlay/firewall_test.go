package underlay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/distro/instance"
)

func TestTheInstancesTableSpeaksOfItsOwnLinksAndRangesOnly(t *testing.T) {
	rules := ruleset(instance.Instance{Name: "a-b", Slot: 2}, instance.Outside{})
	require.True(t, strings.HasPrefix(rules, "table inet mni-a-b {}\ndelete table inet mni-a-b\n"), "it is replaced as a whole")
	require.Equal(t, 3, strings.Count(rules, "table inet "))
	require.Contains(t, rules, `iifname { lo, "mni2-*" } accept`)
	require.Contains(t, rules, "ip saddr 198.19.66.0/24")
	require.NotContains(t, rules, "flush")
}

func TestAFirewallThatDropsForwardedPacketsIsWarnedOf(t *testing.T) {
	list := `{"nftables": [{"metainfo": {"version": "1.0.6"}},
	{"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "handle": 1, "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
	{"chain": {"family": "ip", "table": "filter", "name": "INPUT", "handle": 2, "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}},
	{"chain": {"family": "inet", "table": "mine", "name": "forward", "handle": 2, "type": "filter", "hook": "forward", "prio": 0, "policy": "accept"}},
	{"chain": {"family": "ip", "table": "filter", "name": "DOCKER", "handle": 3}}]}`
	found, err := warnings(instance.Instance{Name: "default"}, []byte(list))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found[0], "ip filter FORWARD")
	require.Contains(t, found[0], "mni0-up")
}
