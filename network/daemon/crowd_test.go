package daemon

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// vpcs is how many VPCs TestManyVPCsOfOneCIDROnTwoNodesDoNotMeet has: 1,000 in `make soak`.
func vpcs(t *testing.T) int {
	given := os.Getenv("VPCS")
	if given == "" {
		return 100
	}
	count, err := strconv.Atoi(given)
	require.NoError(t, err, "VPCS")
	return count
}

// member is a Pod of one of many VPCs. What arrives at its socket says who sent it; it answers with its own name.
type member struct {
	*pod
	vpc  int
	conn *net.UDPConn

	mu sync.Mutex
	// heard counts what arrived, by who sent it; answers what came back, by who answered.
	heard, answers map[string]int
	// wrong is what must not have arrived.
	wrong []string
}

func memberName(vpc int, role string) string { return fmt.Sprintf("vpc%d-%s", vpc, role) }

// listen opens the member's socket and notes what arrives.
func (m *member) listen() error {
	var err error
	m.inside(func() { m.conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port}) })
	if err != nil {
		return err
	}
	m.node.cloud.t.Cleanup(func() { m.conn.Close() })
	go func() {
		buffer := make([]byte, 200)
		for {
			n, from, err := m.conn.ReadFromUDP(buffer)
			if err != nil {
				return
			}
			kind, sender, _ := strings.Cut(string(buffer[:n]), " ")
			m.note(kind, sender, from)
			if kind == "from" {
				_, _ = m.conn.WriteToUDP([]byte("answer "+m.name), from)
			}
		}
	}()
	return nil
}

func (m *member) note(kind, sender string, from *net.UDPAddr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !strings.HasPrefix(sender, fmt.Sprintf("vpc%d-", m.vpc)) {
		m.wrong = append(m.wrong, fmt.Sprintf("%s got %q of %s, from %s", m.name, kind, sender, from))
	}
	if kind == "from" {
		m.heard[sender]++
	} else {
		m.answers[sender]++
	}
}

// send sends one datagram that says who sent it.
func (m *member) send(address string) {
	_, _ = m.conn.WriteToUDP([]byte("from "+m.name), &net.UDPAddr{IP: net.ParseIP(address), Port: port})
}

func (m *member) count(of map[string]int, who string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return of[who]
}

// crowd is many VPCs of one CIDR: each has "a" (10.1.0.5) on the first node and "b" (10.1.0.6) on the second; the first VPC has "c"
// (10.1.0.7) too.
type crowd struct {
	*cloud
	members map[string]*member
}

func newCrowd(t *testing.T, count int) *crowd {
	c := &crowd{newCloud(t, 2), map[string]*member{}}
	built := buildPlugin(t)
	for _, n := range c.nodes {
		n.start()
	}
	for _, n := range c.nodes {
		n.awaitReady()
		n.usePlugin(built)
	}
	infrastructure := 0
	for i := range count {
		subnet := c.subnet(fmt.Sprint("crowd-", i), "10.1.0.0/24", uint32(1001+i), uint32(3001+i))
		add := func(role string, n *node, address string) {
			infrastructure++
			own := fmt.Sprintf("198.18.%d.%d", infrastructure/250, 1+infrastructure%250)
			m := &member{pod: n.pod(memberName(i, role), subnet, address, own), vpc: i, heard: map[string]int{}, answers: map[string]int{}}
			c.members[m.name] = m
		}
		add("a", c.nodes[0], "10.1.0.5")
		add("b", c.nodes[1], "10.1.0.6")
		if i == 0 {
			add("c", c.nodes[1], "10.1.0.7")
		}
	}
	t.Logf("the objects of %d VPCs are made", count)
	var attaching errgroup.Group
	attaching.SetLimit(4)
	for _, m := range c.members {
		attaching.Go(func() error {
			if _, err := m.add(); err != nil {
				return fmt.Errorf("attach %s: %w", m.name, err)
			}
			return m.listen()
		})
	}
	require.NoError(t, attaching.Wait())
	return c
}

// proveReceiving waits until each member has heard the other of its VPC, and an answer of it.
func (c *crowd) proveReceiving() {
	for _, m := range c.members {
		peers := map[string]string{memberName(m.vpc, "a"): "10.1.0.5", memberName(m.vpc, "b"): "10.1.0.6"}
		if m.vpc == 0 {
			peers[memberName(0, "c")] = "10.1.0.7"
		}
		delete(peers, m.name)
		for name, address := range peers {
			require.Eventually(c.t, func() bool {
				m.send(address)
				return c.members[name].count(c.members[name].heard, m.name) > 0 && m.count(m.answers, name) > 0
			}, patience, moment, "%s does not hear %s, or its answer does not come", name, m.name)
		}
	}
}

func TestManyVPCsOfOneCIDROnTwoNodesDoNotMeet(t *testing.T) {
	count := vpcs(t)
	started := time.Now()
	c := newCrowd(t, count)
	t.Logf("%d VPCs, %d Pods attached after %.1f s", count, len(c.members), time.Since(started).Seconds())
	c.proveReceiving()
	for _, m := range c.members { // what was sent to prove it has arrived: it is not counted
		m.mu.Lock()
		clear(m.heard)
		clear(m.answers)
		m.mu.Unlock()
	}

	// Everybody sends, in random order, to whatever might be somebody: the addresses that every VPC has, one that only the first
	// has, infrastructure addresses, nodes, the gateway.
	const rounds = 5
	random := rand.New(rand.NewPCG(uint64(count), 0))
	var names []string
	for name := range c.members {
		names = append(names, name)
	}
	slices.Sort(names)
	for range rounds {
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			m := c.members[name]
			for _, address := range []string{
				"10.1.0.5", "10.1.0.6", "10.1.0.7", "10.1.0.1", "10.1.0.255", machineAddress, c.nodes[0].address.String(), c.nodes[1].address.String(),
				c.members[names[random.IntN(len(names))]].nic.Status.InfrastructureAddress,
			} {
				m.send(address)
			}
		}
	}
	arrived := func() string {
		for i := range count {
			for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}} {
				from, to := c.members[memberName(i, pair[0])], c.members[memberName(i, pair[1])]
				if got := to.count(to.heard, from.name); got < rounds {
					return fmt.Sprintf("%s heard %s %d times, of %d", to.name, from.name, got, rounds)
				}
			}
		}
		return ""
	}
	require.Eventually(t, func() bool { return arrived() == "" }, patience, moment, "not all arrived")
	var wrong []string
	total := 0
	for _, m := range c.members {
		m.mu.Lock()
		wrong = append(wrong, m.wrong...)
		for _, n := range m.heard {
			total += n
		}
		m.mu.Unlock()
	}
	require.Empty(t, wrong, "delivered wrongly")
	t.Logf("%d datagrams arrived where they should, none elsewhere; %.1f s in all", total, time.Since(started).Seconds())
}
