package daemon

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// pool makes an AddressPool as the controller would leave it, and the machine's route to it by a node.
func (c *cloud) pool(cidr string, by *node) {
	p := &netv1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: netv1.AddressPoolSpec{CIDRs: []string{cidr}}}
	c.create(p)
	p.Status.CIDRs = p.Spec.CIDRs
	require.NoError(c.t, c.client.Status().Update(c.t.Context(), p))
	c.poolBy(cidr, by)
}

// poolBy leads the machine's traffic for the pool to a node.
func (c *cloud) poolBy(cidr string, by *node) {
	_, destination, err := net.ParseCIDR(cidr)
	require.NoError(c.t, err)
	route := &netlink.Route{Dst: destination, Gw: by.address.AsSlice()}
	require.NoError(c.t, netlink.RouteReplace(route))
	c.t.Cleanup(func() { _ = netlink.RouteDel(route) })
}

// floating makes a FloatingIP as the controller would leave it.
func (c *cloud) floating(external string, p *pod) *netv1.FloatingIP {
	f := &netv1.FloatingIP{ObjectMeta: metav1.ObjectMeta{Name: external}, Spec: netv1.FloatingIPSpec{ExternalIP: external, NetworkInterface: p.nic.Name}}
	c.create(f)
	f.Status = netv1.FloatingIPStatus{
		ExternalAddress: external, Address: p.nic.Status.Address, VNI: p.nic.Status.VNI, VPCID: p.nic.Status.VPCID, Node: p.node.name,
	}
	require.NoError(c.t, c.client.Status().Update(c.t.Context(), f))
	return f
}

func TestAFloatingIPIsReachedByAnyNodeAndOutlivesTheDaemons(t *testing.T) {
	c := running(t)
	front, blue := c.subnet("front", "10.1.0.0/24", 1001, 1001), c.subnet("blue", "10.1.0.0/24", 1002, 1002)
	web := c.nodes[0].pod("web", front, "10.1.0.5", "198.18.0.5")
	same := c.nodes[1].pod("same", blue, "10.1.0.5", "198.18.0.6")
	for _, p := range []*pod{web, same} {
		p.mustAdd()
		c.answer(p.inside, p.name)
	}
	c.pool("203.0.113.0/24", c.nodes[1])
	c.eventually(c.machine.inside, "203.0.113.5", "")
	c.floating("203.0.113.5", web)
	second := c.floating("203.0.113.6", same)
	answers := func() {
		t.Helper()
		for _, by := range c.nodes {
			c.poolBy("203.0.113.0/24", by)
			c.eventually(c.machine.inside, "203.0.113.5", "web to 192.0.2.1: hello")
			c.eventually(c.machine.inside, "203.0.113.6", "same to 192.0.2.1: hello")
		}
		c.eventually(web.inside, "203.0.113.6", "same to 203.0.113.5: hello")
		c.eventually(same.inside, "203.0.113.5", "web to 203.0.113.6: hello")
	}
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

	require.NoError(t, c.client.Delete(t.Context(), second))
	c.eventuallyDrops(c.nodes[1], "external_free", c.machine.inside, "203.0.113.6")
	c.eventuallyDrops(c.nodes[1], "no_route", same.inside, "203.0.113.5")
	c.eventually(c.machine.inside, "203.0.113.5", "web to 192.0.2.1: hello")
}
