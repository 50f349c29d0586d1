package daemon

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/isolate"
)

// A node is lost and what ran there runs elsewhere. The node comes back with its programs and containers, but its daemon does
// not know yet: nobody must hear the old holder.
func TestANodeThatComesBackCannotSendAsWhatRunsElsewhere(t *testing.T) {
	c := running(t)
	red, back := c.subnet("red", "10.1.0.0/24", 1001, 1001), c.subnet("red-back", "10.1.1.0/24", 1001, 1002)
	lost, other := c.nodes[1], c.nodes[0]
	old := lost.pod("old", red, "10.1.0.5", "198.18.0.5")
	same, across := other.pod("same", red, "10.1.0.6", "198.18.0.6"), other.pod("across", back, "10.1.1.7", "198.18.0.7")
	for _, p := range []*pod{old, same, across} {
		p.mustAdd()
	}
	heard := map[*pod]func() int64{same: c.listen(same.inside), across: c.listen(across.inside)}
	for p := range heard {
		c.say(old.inside, p.nic.Status.Address)
		require.Eventually(t, func() bool { return heard[p]() > 0 }, patience, moment, "%s hears the holder", p.name)
	}
	lost.stop(syscall.SIGKILL)
	// The network's controller gives the interface to the Pod that replaces the lost one.
	old.nic.Spec.Node, old.nic.Spec.Pod = other.name, &netv1.PodReference{Namespace: "shop", Name: "next", UID: "uid-next"}
	require.NoError(t, c.client.Update(t.Context(), old.nic))
	next := &pod{node: other, name: "next", id: "sandbox-next", netns: isolate.Netns(t), nic: old.nic}
	next.mustAdd()
	c.answer(next.inside, "next")
	c.eventually(same.inside, "10.1.0.5", "next to 10.1.0.6: hello")
	c.eventually(across.inside, "10.1.0.5", "next to 10.1.1.7: hello")
	before := map[*pod]int64{same: heard[same](), across: heard[across]()}
	refused := other.dropped("stale_source")
	require.Eventually(t, func() bool { return other.dropped("stale_source") > refused+200 }, patience, moment, "the old holder goes on sending")
	for p, count := range before {
		require.Equal(t, count, heard[p](), "%s hears the old holder", p.name)
	}

	lost.start()
	lost.awaitReady()
	require.Eventually(t, func() bool { return lost.dropped("unknown_interface") > 0 }, patience, moment, "its own daemon cuts the old holder off")
	require.Equal(t, "next to 10.1.0.6: hello", c.ask(same.inside, "10.1.0.5"))
}

// drops are the node's counters of dropped packets.
func (n *node) drops() (lines []string) {
	for line := range strings.Lines(n.get("/metrics")) {
		if strings.HasPrefix(line, "mni_drop_packets_total{") {
			lines = append(lines, line)
		}
	}
	return lines
}

// dropped is how many packets the node's programs dropped for the reason.
func (n *node) dropped(reason string) int {
	total := 0
	for _, line := range n.drops() {
		if strings.Contains(line, fmt.Sprintf("reason=%q", reason)) {
			fields := strings.Fields(line)
			count, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			require.NoError(n.cloud.t, err)
			total += int(count)
		}
	}
	return total
}

// eventuallyDrops asks until there is no answer because the node's programs drop the question for the reason. That an answer does not
// come says nothing by itself: it may be late, and while a change is on its way to the tables something else may drop it.
func (c *cloud) eventuallyDrops(by *node, reason string, where place, address string) {
	c.t.Helper()
	answer := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		before := by.dropped(reason)
		if answer = c.ask(where, address); answer == "" && by.dropped(reason) > before {
			return
		}
	}
	require.Fail(c.t, "not dropped", "%s does not drop what asks %s for %s, the last answer is %q; %v", by.name, address, reason, answer, by.drops())
}

// listen counts datagrams that arrive.
func (c *cloud) listen(where place) (heard func() int64) {
	var conn net.PacketConn
	where(func() {
		var err error
		conn, err = net.ListenPacket("udp4", ":"+strconv.Itoa(port+1))
		require.NoError(c.t, err)
	})
	c.t.Cleanup(func() { conn.Close() })
	count := new(atomic.Int64)
	go func() {
		for buffer := make([]byte, 100); ; count.Add(1) {
			if _, _, err := conn.ReadFrom(buffer); err != nil {
				return
			}
		}
	}()
	return count.Load
}

// say sends datagrams that nobody answers, until the test ends.
func (c *cloud) say(where place, address string) {
	var conn net.Conn
	where(func() {
		var err error
		conn, err = net.Dial("udp4", net.JoinHostPort(address, strconv.Itoa(port+1)))
		require.NoError(c.t, err)
	})
	stop := make(chan struct{})
	c.t.Cleanup(func() { close(stop); conn.Close() })
	go func() {
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				_, _ = conn.Write([]byte("I am"))
			}
		}
	}()
}
