package routing

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func TestVPCsArePeeredWhileEachNamesTheOtherAndNoFurther(t *testing.T) {
	peering := func(vpc, peer string) netv1.VPCPeering {
		return netv1.VPCPeering{Spec: netv1.VPCPeeringSpec{VPC: vpc, Peer: peer}}
	}
	going := peering("d", "a")
	going.DeletionTimestamp = &metav1.Time{}
	going.DeletionTimestamp.Time = going.DeletionTimestamp.AddDate(2000, 0, 0)
	require.Equal(t, map[string][]string{"a": {"b", "c"}, "b": {"a"}, "c": {"a"}}, Peers([]netv1.VPCPeering{
		peering("a", "c"), peering("a", "b"), peering("b", "a"), peering("b", "a"), peering("c", "a"), // b and c are not peered
		peering("a", "d"), going, peering("e", "a"), peering("a", "a"), peering("default", "a"), peering("a", "default"),
	}))
}
