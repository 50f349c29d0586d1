package datapath

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRealPeersReachEachOtherUntilEitherSideEndsIt(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		first, second := r.nodes[0], r.nodes[1]
		p1, p2 := r.pod(first, "p1", 9, 3001, "10.9.1.11"), r.pod(second, "p2", 9, 3001, "10.9.1.12")
		for n, p := range map[*realNode]*realPod{first: p1, second: p2} {
			require.NoError(t, n.Do(func() error { return n.AttachPod(p.ifindex()) }))
		}
		r.silence(r.a1.Namespace, "10.9.1.11:8080")
		there, back := Route{Kind: RoutePeer, VNI: 3001, VPCID: 9}, Route{Kind: RoutePeer, VNI: 1001, VPCID: 7}
		r.route(1001, "10.9.1.0/24", there)
		r.route(3001, "10.0.1.0/24", back)
		r.answers(r.a1.Namespace, "10.9.1.11:8080", "p1", "10.0.1.11")
		r.answers(r.a1.Namespace, "10.9.1.12:8080", "p2", "10.0.1.11")
		r.answers(p1.Namespace, "10.0.1.11:8080", "a1", "10.9.1.11")
		r.answers(p2.Namespace, "10.0.1.11:8080", "a1", "10.9.1.12")
		require.NoError(t, r.a2.Bulk("10.9.1.11:9090", 8<<20))
		// The VPC with the same addresses as the first is no peer, nor is what no route leads to.
		r.silence(r.b1.Namespace, "10.9.1.11:8080")
		r.answers(r.b1.Namespace, "10.0.1.12:8080", "b2", "10.0.1.11")
		r.silence(r.a3.Namespace, "10.9.1.11:8080")

		// Only one node has heard of the end.
		require.NoError(t, second.Routes.Delete(RouteKey{3001, prefix("10.0.1.0/24")}))
		r.silence(r.a1.Namespace, "10.9.1.12:8080")
		r.silence(p2.Namespace, "10.0.1.11:8080")
		r.answers(r.a1.Namespace, "10.9.1.11:8080", "p1", "10.0.1.11")
		require.Positive(t, r.dropped(p2, bpfDropReasonDROP_NO_ROUTE))
	})
}
