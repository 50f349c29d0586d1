package daemon

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// outsideAddress is a server that is not of the cloud.
const outsideAddress = "198.51.100.9"

// natGateway makes a NATGateway as the controller would leave it.
func (c *cloud) natGateway(name string, s *netv1.Subnet, addresses ...string) *netv1.NATGateway {
	g := &netv1.NATGateway{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.NATGatewaySpec{VPC: s.Spec.VPC, ExternalIPs: addresses}}
	c.create(g)
	g.Status = netv1.NATGatewayStatus{VPCID: s.Status.VPCID, Addresses: addresses, Subnets: []string{s.Name}}
	require.NoError(c.t, c.client.Status().Update(c.t.Context(), g))
	return g
}

// portBlocks are the nodes that have blocks of a gateway, one for each.
func (c *cloud) portBlocks(gateway string) (nodes []string) {
	var list netv1.PortBlockList
	require.NoError(c.t, c.client.List(c.t.Context(), &list))
	for i := range list.Items {
		if list.Items[i].Spec.NATGateway == gateway {
			nodes = append(nodes, list.Items[i].Spec.Node)
		}
	}
	return nodes
}

func (c *cloud) outside() {
	c.beyond()
	c.answerAt(machine, net.ParseIP(outsideAddress), "outside")
}

// beyond gives the machine the outside's address.
func (c *cloud) beyond() {
	lo, address := loopback(c.t), outsideAddress+"/32"
	addAddress(c.t, lo, address)
	c.t.Cleanup(func() {
		parsed, err := netlink.ParseAddr(address)
		require.NoError(c.t, err)
		require.NoError(c.t, netlink.AddrDel(lo, parsed))
	})
}

// A node that rebooted had lost its rules for good. https://github.com/kubeovn/kube-ovn/issues/5029
func TestASubnetLeavesByItsNATGatewayAndOthersDoNot(t *testing.T) {
	c := running(t)
	front, back, blue := c.subnet("front", "10.1.0.0/24", 1001, 1001), c.subnet("back", "10.1.1.0/24", 1001, 1002), c.subnet("blue", "10.1.0.0/24", 1002, 1003)
	served := []*pod{c.nodes[0].pod("one", front, "10.1.0.5", "198.18.0.5"), c.nodes[1].pod("two", front, "10.1.0.6", "198.18.0.6")}
	unserved := c.nodes[0].pod("three", back, "10.1.1.5", "198.18.0.7")
	same := c.nodes[0].pod("same", blue, "10.1.0.5", "198.18.0.8")
	for _, p := range append(served, unserved, same) {
		p.mustAdd()
	}
	c.pool("203.0.113.0/24", c.nodes[1])
	c.outside()
	gateway := c.natGateway("gateway", front, "203.0.113.5")
	other := c.natGateway("other", blue, "203.0.113.6")
	leaves := func() {
		t.Helper()
		for _, by := range c.nodes {
			c.poolBy("203.0.113.0/24", by)
			for _, p := range served {
				c.eventually(p.inside, outsideAddress, "outside to 203.0.113.5: hello")
			}
			c.eventually(same.inside, outsideAddress, "outside to 203.0.113.6: hello")
		}
	}
	leaves()
	require.Empty(t, c.ask(unserved.inside, outsideAddress))
	require.Positive(t, c.nodes[0].dropped("no_route"))
	require.ElementsMatch(t, []string{"node-1", "node-1", "node-2", "node-2"}, c.awaitPortBlocks("gateway", 4), "one in use and a spare one on each")
	for _, n := range c.nodes {
		n.stop(os.Kill)
	}
	leaves()
	for _, n := range c.nodes {
		n.start()
		n.awaitReady()
	}
	leaves()
	for _, n := range c.nodes { // a reboot takes programs and tables away
		n.stop(os.Kill)
		n.inside(func() { require.NoError(t, datapath.Remove(n.options.PinPath)) })
		n.start()
		n.awaitReady()
	}
	leaves()
	require.Len(t, c.portBlocks("gateway"), 4, "a restart claims nothing")

	// A gateway that goes is left without addresses, and goes when no node has its ports.
	gateway.Status.Addresses, gateway.Status.Subnets = nil, nil
	require.NoError(t, c.client.Status().Update(t.Context(), gateway))
	c.awaitPortBlocks("gateway", 0)
	require.Empty(t, c.ask(served[0].inside, outsideAddress))
	c.eventually(same.inside, outsideAddress, "outside to 203.0.113.6: hello")
	require.NoError(t, c.client.Delete(t.Context(), other))
	c.awaitPortBlocks("other", 0)
	require.True(t, client.IgnoreNotFound(c.client.Delete(t.Context(), gateway)) == nil)
}

// awaitPortBlocks waits until a gateway has so many.
func (c *cloud) awaitPortBlocks(gateway string, n int) (nodes []string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		nodes = c.portBlocks(gateway)
		return len(nodes) == n
	}, patience, moment, "%d blocks of %s", n, gateway)
	return nodes
}
