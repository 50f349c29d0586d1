package controller

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mnicloud/mnicloud/kit/conditions"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

func aVPC(cidr string, result conditions.Result) *vpcv1.Vpc {
	vpc := &vpcv1.Vpc{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "main", UID: "v", Generation: 1}, Spec: vpcv1.VpcSpec{CIDR: cidr}}
	s := &vpc.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(vpc, result)
	return vpc
}

// aSubnet is a Subnet of Vpc main, made that many seconds after an epoch; taken says that it has its range for good.
func aSubnet(name, cidr string, second int64, taken bool) *vpcv1.Subnet {
	subnet := &vpcv1.Subnet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Unix(second, 0)},
		Spec:       vpcv1.SubnetSpec{VPC: "main", CIDR: cidr},
	}
	if taken {
		subnet.Finalizers = []string{vpcv1.Finalizer}
	}
	return subnet
}

func TestAVpcThatMeetsAReservedRangeIsRefused(t *testing.T) {
	reserved := []netip.Prefix{netip.MustParsePrefix("172.30.0.0/16"), netip.MustParsePrefix("10.96.0.0/12")}
	ok := conditions.Ready("Ready", "")
	require.Nil(t, checkVPC(aVPC("10.0.0.0/16", ok), reserved))
	require.Nil(t, checkVPC(aVPC("172.31.0.0/16", ok), reserved))
	for _, cidr := range []string{"172.30.0.0/16", "172.30.4.0/24", "172.16.0.0/12", "10.0.0.0/8"} {
		no := checkVPC(aVPC(cidr, ok), reserved)
		require.NotNil(t, no, cidr)
		require.Equal(t, "CIDRReserved", no.Reason)
		require.Contains(t, no.Message, "spec.cidr "+cidr+" meets the reserved range")
		require.Contains(t, no.Message, "make a new Vpc")
	}
	require.Equal(t, "CIDRInvalid", checkVPC(aVPC("x", ok), reserved).Reason)
}

func TestASubnetGoesIntoAReadyVpcOfWhichItIsAPart(t *testing.T) {
	ready := conditions.Ready("Ready", "")
	deleting := aVPC("10.0.0.0/16", ready)
	deleting.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	older := aVPC("10.0.0.0/16", ready)
	older.Generation = 2
	for _, tc := range []struct {
		name, cidr string
		vpc        *vpcv1.Vpc
		reason     string
		says       string
	}{
		{"a part", "10.0.1.0/24", aVPC("10.0.0.0/16", ready), "", ""},
		{"the whole", "10.0.0.0/16", aVPC("10.0.0.0/16", ready), "", ""},
		{"no Vpc", "10.0.1.0/24", nil, "VpcNotFound", `spec.vpc names Vpc "main", which does not exist in this namespace; create it`},
		{"beside it", "10.1.0.0/24", aVPC("10.0.0.0/16", ready), "CIDROutsideVPC", `spec.cidr 10.1.0.0/24 is not a part of 10.0.0.0/16, the range of Vpc "main"`},
		{"around it", "10.0.0.0/8", aVPC("10.0.0.0/16", ready), "CIDROutsideVPC", "is not a part of"},
		{"a Vpc that waits", "10.0.1.0/24", aVPC("10.0.0.0/16", conditions.Progressing("Provisioning", "the network is making it")), "VpcNotReady", "not ready yet: the network is making it"},
		{"a Vpc that is refused", "10.0.1.0/24", aVPC("10.0.0.0/16", conditions.Failed("CIDRReserved", "it is reserved")), "VpcNotReady", "it is reserved"},
		{"a Vpc that nobody looked at", "10.0.1.0/24", &vpcv1.Vpc{Spec: vpcv1.VpcSpec{CIDR: "10.0.0.0/16"}}, "VpcNotReady", "not ready yet"},
		{"a Vpc whose status is of before", "10.0.1.0/24", older, "VpcNotReady", "not ready yet"},
		{"a Vpc that goes", "10.0.1.0/24", deleting, "VpcDeleting", "is being deleted"},
		{"no range", "x", aVPC("10.0.0.0/16", ready), "CIDRInvalid", "spec.cidr"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			no := checkSubnet(aSubnet("web", tc.cidr, 0, false), tc.vpc)
			if tc.reason == "" {
				require.Nil(t, no)
				return
			}
			require.NotNil(t, no)
			require.Equal(t, tc.reason, no.Reason)
			require.Contains(t, no.Message, tc.says)
		})
	}
}

func TestWhoHadARangeFirstKeepsIt(t *testing.T) {
	going := aSubnet("a", "10.0.1.0/24", 1, true)
	going.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	goneUntaken := aSubnet("a", "10.0.1.0/24", 1, false)
	goneUntaken.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	elsewhere := aSubnet("a", "10.0.1.0/24", 1, true)
	elsewhere.Spec.VPC = "other"
	for _, tc := range []struct {
		name  string
		other *vpcv1.Subnet
		wins  bool
	}{
		{"older", aSubnet("a", "10.0.1.0/24", 1, false), false},
		{"older, a part", aSubnet("a", "10.0.1.128/25", 1, false), false},
		{"older, the whole", aSubnet("a", "10.0.0.0/16", 1, false), false},
		{"older, larger than the Vpc, so never accepted", aSubnet("a", "10.0.0.0/15", 1, false), true},
		{"older, beside", aSubnet("a", "10.0.2.0/24", 1, true), true},
		{"older, of another Vpc", elsewhere, true},
		{"younger", aSubnet("a", "10.0.1.0/24", 3, false), true},
		{"younger, but it has the range", aSubnet("a", "10.0.1.0/24", 3, true), false},
		{"of the same second, by UID", aSubnet("a", "10.0.1.0/24", 2, false), false},
		{"of the same second, by UID, the other way", aSubnet("z", "10.0.1.0/24", 2, false), true},
		{"older, going, but it has the range still", going, false},
		{"older, going, and it never had the range", goneUntaken, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			subnet := aSubnet("m", "10.0.1.0/24", 2, false)
			no := checkOverlap(subnet, aVPC("10.0.0.0/16", conditions.Ready("Ready", "")), []vpcv1.Subnet{*subnet, *tc.other})
			if tc.wins {
				require.Nil(t, no)
				return
			}
			require.NotNil(t, no)
			require.Equal(t, "CIDROverlap", no.Reason)
			require.Contains(t, no.Message, "spec.cidr 10.0.1.0/24 overlaps "+tc.other.Spec.CIDR+` of Subnet "a"`)
		})
	}
}

func TestOnlySubnetsThatWereMadeKeepAVpc(t *testing.T) {
	elsewhere := aSubnet("c", "10.0.3.0/24", 1, true)
	elsewhere.Spec.VPC = "other"
	names := subnetsIn(aVPC("10.0.0.0/16", conditions.Ready("Ready", "")), []vpcv1.Subnet{
		*aSubnet("b", "10.0.1.0/24", 1, true), *aSubnet("a", "10.0.2.0/24", 1, true), *aSubnet("waits", "10.0.1.0/24", 1, false), *elsewhere,
	})
	require.Equal(t, []string{"a", "b"}, names)
}

func TestManyNamesAreCut(t *testing.T) {
	require.Equal(t, "a, b", some([]string{"a", "b"}))
	require.Equal(t, "a, b, c, d, e and 2 more", some([]string{"a", "b", "c", "d", "e", "f", "g"}))
}
