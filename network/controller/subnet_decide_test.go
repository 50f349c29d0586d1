package controller

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
)

// rival makes a Subnet of VPC "a" that was created at a second, and has come so far.
func rival(name, cidr string, second int64, how standing) *netv1.Subnet {
	s := newSubnet(name, "a", cidr)
	s.UID = types.UID(name)
	s.CreationTimestamp = metav1.NewTime(time.Unix(second, 0))
	if how >= claimed {
		s.Status.VNI = 1000 + uint32(second)
	}
	if how == confirmed {
		s.Status.GatewayMAC = "02:00:00:00:00:01"
	}
	return s
}

func TestOfTwoSubnetsThatOverlapTheEarlierOneWinsUnlessTheOtherIsInUse(t *testing.T) {
	for _, tc := range []struct {
		name        string
		self, other *netv1.Subnet
		want        verdict
	}{
		{"apart", rival("s", "10.0.1.0/24", 5, newcomer), rival("o", "10.0.2.0/24", 1, confirmed), admitted},
		{"in use before me", rival("s", "10.0.1.0/24", 5, newcomer), rival("o", "10.0.0.0/16", 1, confirmed), refused},
		{"in use, though made after me", rival("s", "10.0.1.0/24", 5, newcomer), rival("o", "10.0.1.0/24", 9, confirmed), refused},
		{"I am in use, an earlier one comes late", rival("s", "10.0.1.0/24", 5, confirmed), rival("o", "10.0.1.0/24", 1, newcomer), admitted},
		{"both new, I am earlier", rival("s", "10.0.1.0/24", 5, newcomer), rival("o", "10.0.1.0/24", 6, newcomer), admitted},
		{"both new, I am later", rival("s", "10.0.1.0/24", 5, newcomer), rival("o", "10.0.1.0/24", 4, newcomer), refused},
		{"both new, of one second, lower UID", rival("b", "10.0.1.0/24", 5, newcomer), rival("c", "10.0.1.0/24", 5, newcomer), admitted},
		{"both new, of one second, higher UID", rival("b", "10.0.1.0/24", 5, newcomer), rival("a", "10.0.1.0/24", 5, newcomer), refused},
		{"both claim, I am earlier: the other may confirm yet", rival("s", "10.0.1.0/24", 5, claimed), rival("o", "10.0.1.0/24", 6, claimed), undecided},
		{"both claim, I am later: I give way", rival("s", "10.0.1.0/24", 5, claimed), rival("o", "10.0.1.0/24", 4, claimed), refused},
		{"a later one claims before me", rival("s", "10.0.1.0/24", 5, newcomer), rival("o", "10.0.1.0/24", 6, claimed), undecided},
		{"I claim, a later one is new", rival("s", "10.0.1.0/24", 5, claimed), rival("o", "10.0.1.0/24", 6, newcomer), admitted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, by := compete(tc.self, []netv1.Subnet{*tc.self, *tc.other})
			require.Equal(t, tc.want, got)
			if tc.want != admitted {
				require.Equal(t, tc.other.Name, by.Name)
			}
		})
	}
}

func TestOneVNITwiceIsAConflictToo(t *testing.T) {
	self, other := rival("s", "10.0.1.0/24", 5, claimed), rival("o", "10.0.2.0/24", 4, confirmed)
	other.Status.VNI = self.Status.VNI
	got, _ := compete(self, []netv1.Subnet{*other})
	require.Equal(t, refused, got)
}

func TestSubnetsThatCannotBecomeRealDoNotStandInTheWay(t *testing.T) {
	self := rival("s", "10.0.1.0/24", 5, newcomer)
	otherVPC := rival("o", "10.0.1.0/24", 1, confirmed)
	otherVPC.Spec.VPC = "b"
	stuck := rival("o", "10.0.1.0/24", 1, newcomer)
	meta.SetStatusCondition(&stuck.Status.Conditions, metav1.Condition{Type: status.ConditionStalled, Status: metav1.ConditionTrue, Reason: "x"})
	going := rival("o", "10.0.1.0/24", 1, newcomer)
	going.DeletionTimestamp = ptr(metav1.Now())
	for _, other := range []*netv1.Subnet{otherVPC, stuck, going} {
		got, _ := compete(self, []netv1.Subnet{*other})
		require.Equal(t, admitted, got)
	}
	inUseYet := rival("o", "10.0.1.0/24", 1, confirmed)
	inUseYet.DeletionTimestamp = ptr(metav1.Now())
	got, _ := compete(self, []netv1.Subnet{*inUseYet})
	require.Equal(t, refused, got, "until it is gone its interfaces may send")
}

func TestASubnetIsCheckedAgainstTheConfiguration(t *testing.T) {
	config := testConfig()
	inUse := rival("old", "198.19.0.0/24", 1, confirmed)
	home := newSubnet(netv1.DefaultSubnet, netv1.DefaultVPC, "198.18.0.0/17")
	moved := newSubnet(netv1.DefaultSubnet, netv1.DefaultVPC, "198.18.128.0/17")
	foreign := newSubnet(netv1.DefaultSubnet, "a", "198.18.0.0/17")
	for _, tc := range []struct {
		name    string
		subnet  *netv1.Subnet
		reason  string
		message string
	}{
		{"free", newSubnet("s", "a", "10.0.1.0/24"), "", ""},
		{"reserved", newSubnet("s", "a", "198.18.3.0/24"), reasonCIDRReserved, "spec.cidr: 198.18.3.0/24 meets 198.18.0.0/15"},
		{"around a reserved one", newSubnet("s", "a", "169.0.0.0/8"), reasonCIDRReserved, "meets 169.254.0.0/16"},
		{"reserved after it came into use", inUse, "", ""},
		{"not canonical", newSubnet("s", "a", "10.0.1.5/24"), reasonCIDRInvalid, "spec.cidr: 10.0.1.5/24"},
		{"too small", newSubnet("s", "a", "10.0.1.4/31"), reasonCIDRInvalid, "between /8 and /30"},
		{"IPv6", newSubnet("s", "a", "fd00::/64"), reasonCIDRInvalid, "IPv4"},
		{"nonsense", newSubnet("s", "a", "x"), reasonCIDRInvalid, "spec.cidr: x"},
		{"default", home, "", ""},
		{"default with another range", moved, reasonMisconfigured, "the configuration says 198.18.0.0/17"},
		{"default in another VPC", foreign, reasonMisconfigured, "in VPC default"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := checkSubnet(tc.subnet, config)
			require.Equal(t, tc.reason == "", ok)
			require.Equal(t, tc.reason, got.Reason)
			require.Contains(t, got.Message, tc.message)
		})
	}
}

func TestASubnetWaitsForItsVPC(t *testing.T) {
	ready := newVPC("a")
	ready.Status.ID = 1001
	going := ready.DeepCopy()
	going.DeletionTimestamp = ptr(metav1.Now())
	fresh, inUse := rival("s", "10.0.1.0/24", 1, newcomer), rival("s", "10.0.1.0/24", 1, confirmed)
	for _, tc := range []struct {
		name    string
		subnet  *netv1.Subnet
		vpc     *netv1.VPC
		missing bool
		message string
	}{
		{"ready", fresh, ready, false, ""},
		{"missing", fresh, &netv1.VPC{}, true, "VPC a does not exist yet"},
		{"without ID", fresh, newVPC("a"), false, "has no ID yet"},
		{"being deleted", fresh, going, false, "is being deleted; delete this Subnet too"},
		{"being deleted, but in use", inUse, going, false, ""},
		{"missing, but in use", inUse, &netv1.VPC{}, true, "does not exist yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := checkVPC(tc.subnet, tc.vpc, tc.missing)
			require.Equal(t, tc.message == "", ok)
			require.Contains(t, got.Message, tc.message)
		})
	}
}

func TestMACAddressesAreUnicastLocallyAdministeredAndRandom(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		s, err := claim.NewMAC()
		require.NoError(t, err)
		mac, err := net.ParseMAC(s)
		require.NoError(t, err)
		require.EqualValues(t, 2, mac[0]&3, s)
		seen[s] = true
	}
	require.Len(t, seen, 1000)
}

func TestManyNamesAreCutShort(t *testing.T) {
	require.Equal(t, "a, b", nameSome([]string{"a", "b"}))
	require.Equal(t, "a, b, c, d, e and 2 more", nameSome([]string{"a", "b", "c", "d", "e", "f", "g"}))
}
