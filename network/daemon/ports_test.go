package daemon

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/test/isolate"
)

func hostPort(port int, more ...any) map[string]any {
	mapping := map[string]any{"hostPort": port, "containerPort": 7000, "protocol": "udp"}
	for i := 0; i+1 < len(more); i += 2 {
		mapping[more[i].(string)] = more[i+1]
	}
	return mapping
}

func TestAHostPortLeadsToItsPod(t *testing.T) {
	c := running(t)
	subnet := c.defaultSubnet()
	one, two := c.nodes[0], c.nodes[1]
	web, neighbour, far := one.pod("web", subnet, "198.18.0.5", "198.18.0.5"), one.pod("near", subnet, "198.18.0.6", "198.18.0.6"), two.pod("far", subnet, "198.18.0.7", "198.18.0.7")
	web.ports = []map[string]any{hostPort(port), hostPort(7001, "hostIP", "203.0.113.77")}
	for _, p := range []*pod{web, neighbour, far} {
		p.mustAdd()
		c.answer(p.inside, p.name)
	}
	addAddress(t, loopback(t), "203.0.113.9/32")
	address := one.address.String()
	c.eventually(machine, address, "web to 192.0.2.2: hello") // a member: the node stands for it
	c.eventually(one.inside, address, "web to 192.0.2.2: hello")
	c.eventually(two.inside, address, "web to 192.0.2.2: hello")
	c.eventually(far.inside, address, "web to 192.0.2.2: hello")
	c.eventually(neighbour.inside, address, "web to 192.0.2.2: hello")
	c.eventually(web.inside, address, "web to 192.0.2.2: hello") // itself
	outside := func(f func()) { machine(f) }
	c.eventuallyFrom(outside, "203.0.113.9", address, "web to 203.0.113.9: hello") // the outside is seen as it is
	require.Empty(t, c.ask(one.inside, "203.0.113.77"), "another address's port")
	require.Empty(t, c.ask(two.inside, two.address.String()), "another node's port")

	// It survives the daemon, moves with a new sandbox, with its flows, and goes with the Pod.
	one.stop(syscall.SIGKILL)
	require.Equal(t, "web to 192.0.2.2: hello", c.ask(machine, address))
	one.start()
	one.awaitReady()
	again := &pod{node: one, name: web.name, id: "sandbox-again", netns: isolate.Netns(t), nic: web.nic, ports: web.ports}
	again.mustAdd()
	c.answer(again.inside, "again")
	require.NoError(t, web.del())
	c.eventually(machine, address, "again to 192.0.2.2: hello")
	require.NoError(t, again.del())
	require.Eventually(t, func() bool { return c.ask(machine, address) == "" }, patience, moment)
}

func TestATenantsPodHasNoPortOfTheHost(t *testing.T) {
	c := running(t)
	red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
	web := c.nodes[0].pod("web", red, "10.1.0.5", "198.18.0.5")
	web.ports = []map[string]any{hostPort(port)}
	_, err := web.add()
	require.ErrorContains(t, err, "hostPort 7000 of containerPort 7000: Pods in a tenant's VPC have no ports of the host; remove hostPort")
	require.Empty(t, c.nodes[0].links(), "nothing half-made")
}

// eventuallyFrom asks from one address of a place.
func (c *cloud) eventuallyFrom(where place, source, address, answer string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.askFrom(where, net.ParseIP(source), address) == answer }, patience, moment, answer)
}
