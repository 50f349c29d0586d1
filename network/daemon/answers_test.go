package daemon

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/network/datapath"
)

// The interface is there before its VPC's first Service, and connections through a Service outlive it.
func TestAnInterfaceUsesItsVPCsFirstServiceAndItsConnectionsOutliveTheLast(t *testing.T) {
	c := running(t)
	c.shop()
	red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
	client, backend := c.nodes[0].pod("client", red, "10.1.0.5", "198.18.0.5"), c.nodes[1].pod("backend", red, "10.1.0.6", "198.18.0.6")
	client.mustAdd()
	backend.mustAdd()
	c.echo(backend.inside, port)
	c.opens(client.inside, "10.1.0.6", port)
	require.True(t, client.node.looksForNoAnswers(1001))

	c.serviceIn("shop", "web", "10.0.0.30", corev1.ProtocolTCP, "198.18.0.6")
	running := c.opens(client.inside, "10.0.0.30", port)
	require.True(t, talks(running, patience))
	require.NoError(t, c.client.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "test-web"}}))
	require.Eventually(t, func() bool {
		_, err := c.connect(client.inside, "10.0.0.30", port)
		return err != nil
	}, patience, moment, "a Service that is gone takes new connections")
	require.True(t, talks(running, patience))
	client.node.stop(syscall.SIGKILL)
	client.node.start()
	client.node.awaitReady()
	require.True(t, talks(running, patience))
	require.False(t, client.node.looksForNoAnswers(1001))
}

// looksForNoAnswers tells whether the node's interface in a VPC is not asked for Services' answers.
func (n *node) looksForNoAnswers(vpc uint32) (none bool) {
	t := n.cloud.t
	n.inside(func() {
		maps, err := datapath.Open(n.options.PinPath)
		require.NoError(t, err)
		defer maps.Close()
		nics, err := maps.NICs.List()
		require.NoError(t, err)
		for _, nic := range nics {
			none = none || nic.VPCID == vpc && nic.NoServices
		}
	})
	return none
}
