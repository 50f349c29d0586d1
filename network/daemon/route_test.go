package daemon

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// checks changes the interface's source and destination check.
func (p *pod) checks(check bool) {
	p.nic.Spec.SourceDestCheck = &check
	require.NoError(p.node.cloud.t, p.node.cloud.client.Update(p.node.cloud.t.Context(), p.nic))
}

func TestARouteTableIsFollowedAndOutlivesTheDaemons(t *testing.T) {
	c := running(t)
	front, back, middle := c.subnet("front", "10.1.0.0/24", 1001, 1001), c.subnet("back", "10.1.1.0/24", 1001, 1002), c.subnet("middle", "10.1.2.0/24", 1001, 1003)
	table := &netv1.RouteTable{ObjectMeta: metav1.ObjectMeta{Name: "inspected"}, Spec: netv1.RouteTableSpec{VPC: "vpc-1001", Routes: []netv1.Route{
		{Destination: "10.1.1.0/24", Interface: ptr.To("uid-firewall")},
	}}}
	c.create(table)
	update := func() { require.NoError(t, c.client.Update(t.Context(), table)) }
	use := func(name string) {
		front.Spec.RouteTable = name
		require.NoError(t, c.client.Update(t.Context(), front))
	}
	web := c.nodes[0].pod("web", front, "10.1.0.5", "198.18.0.5")
	near, far := c.nodes[0].pod("near", back, "10.1.1.6", "198.18.0.6"), c.nodes[1].pod("far", back, "10.1.1.7", "198.18.0.7")
	firewall := c.nodes[1].pod("firewall", middle, "10.1.2.8", "198.18.0.8")
	firewall.checks(false)
	for _, p := range []*pod{web, near, far} {
		p.mustAdd()
		c.answer(p.inside, p.name)
	}
	answers := func() {
		t.Helper()
		c.eventually(web.inside, "10.1.1.6", "near to 10.1.0.5: hello")
		c.eventually(web.inside, "10.1.1.7", "far to 10.1.0.5: hello")
	}
	silent := func(by *node, reason string) {
		t.Helper()
		c.eventuallyDrops(by, reason, web.inside, "10.1.1.6")
		c.eventuallyDrops(by, reason, web.inside, "10.1.1.7")
	}
	answers() // no Subnet names the table
	use("inspected")
	silent(firewall.node, "no_next_hop") // the firewall has no Pod yet
	firewall.mustAdd()
	firewall.inside(func() {
		value, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
		require.NoError(t, err)
		require.Equal(t, "1", strings.TrimSpace(string(value)))
	})
	answers()

	for _, n := range c.nodes {
		n.stop(os.Kill)
	}
	answers()
	for _, n := range c.nodes {
		n.start()
		n.awaitReady()
	}
	answers()

	firewall.checks(true)
	silent(web.node, "no_next_hop")
	firewall.checks(false)
	answers()
	table.Spec.Routes[0] = netv1.Route{Destination: "10.1.1.0/24", Address: ptr.To("10.1.2.8")}
	update()
	answers()
	table.Spec.Routes[0] = netv1.Route{Destination: "10.1.1.0/24", Blackhole: ptr.To(true)}
	update()
	silent(web.node, "blackhole")
	use("")
	answers()
}
