package bird

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

const (
	// targets are external addresses on the second node, from 203.0.113.100 on, each with an echo.
	targets = 16
	echo    = 7
	// floodRate is datagrams a second to each.
	floodRate = 200
)

func target(i int) string { return fmt.Sprintf("203.0.113.%d", 100+i) }

// longestGap is the longest time in which nothing came back.
func longestGap(lost []int) time.Duration {
	longest, run := 0, 0
	for i, number := range lost {
		if i == 0 || number != lost[i-1]+1 {
			run = 0
		}
		run++
		longest = max(longest, run)
	}
	return time.Duration(longest) * time.Second / floodRate
}

// Two nodes announce the pool; the targets are on the second, and what comes to the first is sent on. The first dies without a word: no
// connection is closed, no link of the router's goes down. BFD of 3 x 300 ms has the traffic back within a second.
func TestTrafficIsBackWithinASecondOfANodesDeath(t *testing.T) {
	network := testnet.New(t, 2)
	r := testnet.StartRouter(t, network.Outside, router)
	first, second := newNode(t, network.Nodes[0]), newNode(t, network.Nodes[1])
	for i := range targets {
		second.AddAddress("lo", target(i)+"/32")
		second.ServeEcho(target(i), echo)
		first.AddRoute(target(i)+"/32", testnet.UplinkName, second.Address.String(), "")
	}
	for _, name := range []string{"all", "default", testnet.UplinkName} {
		first.Sysctl("net/ipv4/conf/"+name+"/send_redirects", "0") // between nodes it would be VXLAN
	}
	first.ensure()
	second.ensure()
	both, one := "203.0.113.0/24 via 192.0.2.1 192.0.2.2", "203.0.113.0/24 via 192.0.2.2"
	byDefault := defaultRoute(t, first)
	// Another load of the machine's may delay a death that is noticed in 0.9 s beyond the second; not three of three.
	best := time.Hour
	for try := 0; try < 3 && best > time.Second; try++ {
		has(t, r, both)
		require.Eventually(t, func() bool { return bfdUp(r) == 2 }, patience, 50*time.Millisecond)
		var counts []func() (int, []int)
		for i := range targets {
			counts = append(counts, network.Outside.Flood(fmt.Sprintf("%s:%d", target(i), echo), floodRate))
		}
		before := time.Now()
		require.Eventually(t, func() bool { return time.Since(before) > time.Second }, patience, 50*time.Millisecond)
		uplink := first.Link(testnet.UplinkName)
		require.NoError(t, first.Links().LinkSetDown(uplink))
		has(t, r, one)
		before = time.Now()
		require.Eventually(t, func() bool { return time.Since(before) > time.Second }, patience, 50*time.Millisecond)
		worst, hit := time.Duration(0), 0
		losses := make([][]int, len(counts))
		var counting sync.WaitGroup
		for i, count := range counts {
			counting.Go(func() { _, losses[i] = count() })
		}
		counting.Wait()
		for _, lost := range losses {
			if len(lost) > 0 {
				hit++
			}
			worst = max(worst, longestGap(lost))
		}
		t.Logf("%d of %d targets were reached by the node that died, and again after %s", hit, targets, worst)
		require.Positive(t, hit, "none was reached by the node that died: nothing was shown")
		require.Less(t, hit, targets, "nor by the other")
		best = min(best, worst)

		require.NoError(t, first.Links().LinkSetUp(uplink))
		require.NoError(t, first.Links().RouteReplace(byDefault))
		for i := range targets {
			first.AddRoute(target(i)+"/32", testnet.UplinkName, second.Address.String(), "")
		}
	}
	require.LessOrEqual(t, best, time.Second)
}

// defaultRoute is the node's, which goes with its uplink.
func defaultRoute(t testing.TB, n *node) *netlink.Route {
	t.Helper()
	_, everything, err := net.ParseCIDR("0.0.0.0/0")
	require.NoError(t, err)
	routes, err := n.Links().RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: everything}, netlink.RT_FILTER_DST)
	require.NoError(t, err)
	require.Len(t, routes, 1)
	return &routes[0]
}

// bfdUp is how many of the router's BFD sessions are up.
func bfdUp(r *testnet.Router) int { return strings.Count(r.Ask("show bfd peers brief"), " up ") }
