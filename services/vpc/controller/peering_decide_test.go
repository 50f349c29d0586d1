package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

func peeringOf(namespace, uid, vpc, peerTenant, peerVPC string) *vpcv1.VpcPeering {
	return &vpcv1.VpcPeering{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uid, UID: types.UID(uid)},
		Spec:       vpcv1.VpcPeeringSpec{VPC: vpc, Peer: vpcv1.VpcPeer{Tenant: peerTenant, VPC: peerVPC}},
	}
}

func TestOnlyWhatNamesThisVpcOfThisTenantAgrees(t *testing.T) {
	ours := peeringOf("ns-a", "ours", "main", "blue", "data")
	for name, c := range map[string]struct {
		other  *vpcv1.VpcPeering
		tenant string
		want   bool
	}{
		"the other way round":                   {peeringOf("ns-b", "x", "data", "red", "main"), "red", true},
		"with another tenant":                   {peeringOf("ns-b", "x", "data", "green", "main"), "red", false},
		"with one of its own":                   {peeringOf("ns-b", "x", "data", "", "main"), "red", false},
		"of another Vpc":                        {peeringOf("ns-b", "x", "other", "red", "main"), "red", false},
		"with another Vpc":                      {peeringOf("ns-b", "x", "data", "red", "second"), "red", false},
		"with who has no name":                  {peeringOf("ns-b", "x", "data", "", "main"), "", false},
		"of the same tenant":                    {peeringOf("ns-a", "x", "data", "", "main"), "", true},
		"of the same tenant, which it names":    {peeringOf("ns-a", "x", "data", "red", "main"), "red", true},
		"of the same tenant, but with another":  {peeringOf("ns-a", "x", "data", "blue", "main"), "red", false},
		"itself":                                {ours, "red", false},
		"of the namespace's name, not tenant's": {peeringOf("ns-b", "x", "data", "ns-a", "main"), "red", false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, namesBack(ours, c.other, c.tenant)) })
	}
	going := peeringOf("ns-b", "x", "data", "red", "main")
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	require.False(t, namesBack(ours, going, "red"))
}

func TestWhoJoinsStaysThenTheOlderOne(t *testing.T) {
	at := func(uid string, second int64, joins string) *vpcv1.VpcPeering {
		p := peeringOf("ns", uid, "main", "", "data")
		p.CreationTimestamp, p.Status.PeerCIDR = metav1.Unix(second, 0), joins
		return p
	}
	require.True(t, peeringPrecedes(at("b", 2, "10.0.0.0/16"), at("a", 1, "")))
	require.False(t, peeringPrecedes(at("a", 1, ""), at("b", 2, "10.0.0.0/16")))
	require.True(t, peeringPrecedes(at("a", 1, ""), at("b", 2, "")))
	require.True(t, peeringPrecedes(at("a", 1, "10.0.0.0/16"), at("b", 1, "10.0.0.0/16")), "of one second by UID: never both, never neither")
	require.False(t, peeringPrecedes(at("b", 1, "10.0.0.0/16"), at("a", 1, "10.0.0.0/16")))
}
