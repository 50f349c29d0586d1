package daemon

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// blockOf is the node that has the block of an external port, "" when nobody has.
func (c *cloud) blockOf(gateway string, port uint16) string {
	var list netv1.PortBlockList
	require.NoError(c.t, c.client.List(c.t.Context(), &list))
	for i := range list.Items {
		if s := list.Items[i].Spec; s.NATGateway == gateway && s.FirstPort == int32(port)&^(netv1.PortBlockSize-1) {
			return s.Node
		}
	}
	return ""
}

// A node is lost, and its blocks become another's meanwhile. Once it is back and has heard of that it sends from its own blocks only, its
// flows of the others are no more, and what comes in for their ports goes to who has them by now.
func TestANodeThatComesBackSendsFromNoBlockThatAnotherGotMeanwhile(t *testing.T) {
	const external, connections = "203.0.113.5", 200
	var c *cloud
	t.Cleanup(func() { require.NoError(t, c.client.DeleteAllOf(context.Background(), &netv1.PortBlock{})) }) // when the daemons have ended
	c = running(t)
	lost, other := c.nodes[0], c.nodes[1]
	front := c.subnet("front", "10.1.0.0/24", 1001, 1001)
	here, there := lost.pod("here", front, "10.1.0.5", "198.18.0.5"), other.pod("there", front, "10.1.0.6", "198.18.0.6")
	here.mustAdd()
	there.mustAdd()
	c.pool("203.0.113.0/24", other)
	c.natGateway("gateway", front, external)
	c.awaitPortBlocks("gateway", 2)
	o := newOpener(t, external, outsideAddress+":443", here)
	var before []uint16
	lost.inside(func() {
		o.eventuallyOpens(t, 0, 1)
		for i := range uint16(connections) {
			port := o.open(t, 0, 2000+i)
			require.NotZero(t, port)
			o.isAnswered(t, port, 0, 2000+i)
			before = append(before, port)
		}
	})

	lost.stop(os.Kill)
	var list netv1.PortBlockList
	require.NoError(t, c.client.List(t.Context(), &list))
	for i := range list.Items {
		b := &list.Items[i]
		if b.Spec.Node != lost.name {
			continue
		}
		require.NoError(t, c.client.Delete(t.Context(), b))
		taken := &netv1.PortBlock{Spec: b.Spec}
		taken.Name, taken.Spec.Node = b.Name, other.name
		c.create(taken)
	}
	lost.start()
	lost.awaitReady()

	o = newOpener(t, external, outsideAddress+":443", here) // the daemon has put its own programs in place
	lost.inside(func() {
		o.eventuallyOpens(t, 0, 1) // from a block that it has got since
		for i, was := range before {
			require.Equal(t, other.name, c.blockOf("gateway", was))
			o.isSentOn(t, was)
			port := o.open(t, 0, 2000+uint16(i))
			require.NotZero(t, port)
			require.Equal(t, lost.name, c.blockOf("gateway", port), "it sends from port %d", port)
			o.isAnswered(t, port, 0, 2000+uint16(i))
		}
	})
	c.outside()
	c.eventually(here.inside, outsideAddress, "outside to 203.0.113.5: hello")
	c.eventually(there.inside, outsideAddress, "outside to 203.0.113.5: hello")

	// The controller takes its blocks, as its Node's object is gone. It hears of that, translates with others, and gives those back.
	require.NoError(t, c.client.List(t.Context(), &list))
	released := map[string]types.UID{}
	for i := range list.Items {
		b := &list.Items[i]
		if b.Spec.Node != lost.name {
			continue
		}
		base, now := b.DeepCopy(), metav1.NowMicro()
		b.Spec.ReleasedAt = &now
		require.NoError(t, c.client.Patch(t.Context(), b, client.MergeFrom(base)))
		released[b.Name] = b.UID
	}
	require.NotEmpty(t, released)
	require.Eventually(t, func() bool {
		require.NoError(t, c.client.List(t.Context(), &list))
		return !slices.ContainsFunc(list.Items, func(b netv1.PortBlock) bool { return released[b.Name] == b.UID })
	}, patience, moment, "it gives the blocks back")
	c.eventually(here.inside, outsideAddress, "outside to 203.0.113.5: hello")
}
