package daemon

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// witness is a server outside that answers who asks with its name, and remembers where that came from.
type witness struct {
	mu   sync.Mutex
	from map[string]map[string]bool // external addresses and ports, by name
}

func (c *cloud) witness() *witness {
	c.beyond()
	w := &witness{from: map[string]map[string]bool{}}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(outsideAddress), Port: port})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 200)
		for {
			n, from, err := conn.ReadFromUDP(buffer)
			if err != nil {
				return
			}
			name := strings.TrimPrefix(string(buffer[:n]), "from ")
			w.mu.Lock()
			if w.from[name] == nil {
				w.from[name] = map[string]bool{}
			}
			w.from[name][from.String()] = true
			w.mu.Unlock()
			_, _ = conn.WriteToUDP([]byte("answer "+name), from)
		}
	}()
	return w
}

// Every VPC has the same addresses, and each Pod sends from the same port to the same server. All leave by one external address, by two nodes, and
// the answers come in by either.
func TestManyVPCsLeaveByOneExternalAddressFromTheSamePortsAndNoneIsConfused(t *testing.T) {
	const count, external, rounds = 16, "203.0.113.5", 25
	c := newCrowd(t, count)
	c.pool("203.0.113.0/24", c.nodes[0])
	w := c.witness()
	for i := range count {
		subnet := &netv1.Subnet{}
		require.NoError(t, c.client.Get(t.Context(), client.ObjectKey{Name: fmt.Sprint("crowd-", i)}, subnet))
		c.natGateway(fmt.Sprint("gateway-", i), subnet, external)
	}
	members := slices.SortedFunc(maps.Values(c.members), func(a, b *member) int { return strings.Compare(a.name, b.name) })
	for _, m := range members { // until its node has ports
		require.Eventually(t, func() bool {
			m.send(outsideAddress)
			return m.count(m.answers, m.name) > 0
		}, patience, moment, "%s is not answered from outside", m.name)
	}
	for _, by := range c.nodes {
		c.poolBy("203.0.113.0/24", by)
		for range rounds {
			before := map[string]int{}
			for _, m := range members {
				before[m.name] = m.count(m.answers, m.name)
			}
			for _, m := range members { // all at once
				m.send(outsideAddress)
			}
			for _, m := range members {
				require.Eventually(t, func() bool { return m.count(m.answers, m.name) > before[m.name] }, patience, time.Millisecond,
					"%s is not answered by %s", m.name, by.name)
			}
		}
	}
	for _, m := range members {
		m.mu.Lock()
		require.Empty(t, m.wrong)
		require.Equal(t, []string{m.name}, slices.Collect(maps.Keys(m.answers)), "answers that %s got", m.name)
		m.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Len(t, w.from, len(members))
	holder := map[string]string{}
	for name, places := range w.from {
		require.Len(t, places, 1, "%s left from %v", name, places)
		for place := range places {
			require.Empty(t, holder[place], "%s and %s left from %s", name, holder[place], place)
			holder[place] = name
			require.True(t, strings.HasPrefix(place, external+":"), place)
		}
	}
}
