package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// newPool is a pool made at a second, that asks for some ranges and has others.
func newPool(name string, second int64, asks, has string) netv1.AddressPool {
	return netv1.AddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(second, 0))},
		Spec:       netv1.AddressPoolSpec{CIDRs: strings.Fields(asks)}, Status: netv1.AddressPoolStatus{CIDRs: strings.Fields(has)},
	}
}

func TestOfPoolsThatOverlapOneHasTheAddresses(t *testing.T) {
	const a, b = "203.0.113.0/24", "203.0.113.128/25"
	for _, tc := range []struct {
		name        string
		self, other netv1.AddressPool
		want        string
		reason      string
	}{
		{"apart", newPool("s", 5, a, ""), newPool("o", 1, "198.51.100.0/24", "198.51.100.0/24"), a, reasonReady},
		{"the other has them", newPool("s", 1, a, ""), newPool("o", 5, b, b), "", reasonCIDROverlap},
		{"I have them, an older one asks", newPool("s", 5, a, a), newPool("o", 1, b, ""), a, reasonReady},
		{"both ask, I am older", newPool("s", 1, a, ""), newPool("o", 5, b, ""), a, reasonReady},
		{"both ask, I am younger", newPool("s", 5, a, ""), newPool("o", 1, b, ""), "", reasonCIDROverlap},
		{"both ask in one second, lower UID", newPool("a", 1, a, ""), newPool("o", 1, b, ""), a, reasonReady},
		{"both ask in one second, higher UID", newPool("s", 1, a, ""), newPool("o", 1, b, ""), "", reasonCIDROverlap},
		{"both have them, I am older", newPool("s", 1, a, a), newPool("o", 5, b, b), a, reasonReady},
		{"both have them, I am younger: I give way", newPool("s", 5, a, a), newPool("o", 1, b, b), "", reasonCIDROverlap},
		{"I grow into the other's", newPool("s", 1, "192.168.1.0/24 "+a, "192.168.1.0/24"), newPool("o", 5, b, b), "192.168.1.0/24", reasonCIDROverlap},
		{"I grow", newPool("s", 9, "192.168.1.0/24 192.168.2.0/24", "192.168.1.0/24"), newPool("o", 5, b, b), "192.168.1.0/24 192.168.2.0/24", reasonReady},
		{"I shrink", newPool("s", 9, "192.168.1.0/24", "192.168.1.0/24 192.168.2.0/24"), newPool("o", 5, b, b), "192.168.1.0/24", reasonReady},
		{"reserved", newPool("s", 1, "198.18.3.0/24", ""), newPool("o", 5, b, b), "", reasonCIDRReserved},
		{"not canonical", newPool("s", 1, "192.168.1.1/24", ""), newPool("o", 5, b, b), "", reasonCIDRInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, result := decidePool(&tc.self, []netv1.AddressPool{tc.other, tc.self}, testConfig())
			require.Equal(t, tc.want, strings.Join(got, " "))
			require.Equal(t, tc.reason, result.Reason)
			if tc.reason != reasonReady {
				require.Contains(t, result.Message, "spec.cidrs: ")
			}
		})
	}
}

func TestAPoolThatOverlapsWaitsUntilTheOtherGoes(t *testing.T) {
	w := newWorld(t)
	make1 := func(name string) *netv1.AddressPool {
		p := &netv1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.AddressPoolSpec{CIDRs: []string{"203.0.113.0/24"}}}
		require.NoError(t, w.Create(w.ctx, p))
		return p
	}
	ready := func(p *netv1.AddressPool) func() bool {
		return func() bool {
			require.NoError(t, w.Get(w.ctx, types.NamespacedName{Name: p.Name}, p))
			return p.Status.Phase == "Ready"
		}
	}
	first := make1("first")
	w.eventually("the first pool is Ready", ready(first))
	second := make1("second")
	w.eventually("the second says why it is not", func() bool {
		require.NoError(t, w.Get(w.ctx, types.NamespacedName{Name: second.Name}, second))
		return second.Status.Phase == "Error"
	})
	require.Contains(t, second.Status.Conditions[0].Message, "AddressPool first")
	require.Empty(t, second.Status.CIDRs)
	require.NoError(t, w.Delete(w.ctx, first))
	w.eventually("the second has the addresses", ready(second))
	require.NoError(t, w.Delete(w.ctx, second))
}

func TestAPoolThatOverlapsIsRefusedAtAdmission(t *testing.T) {
	w := newWorld(t)
	w.policies()
	create := func(name string, cidrs ...string) error {
		p := &netv1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.AddressPoolSpec{CIDRs: cidrs}}
		err := w.Create(w.ctx, p)
		if err == nil {
			t.Cleanup(func() { _ = w.Delete(w.ctx, p) })
		}
		return err
	}
	require.NoError(t, create("first", "203.0.113.0/24", "198.51.100.0/25"))
	w.eventually("the policy is enforced", func() bool {
		err := w.Create(w.ctx, &netv1.AddressPool{
			ObjectMeta: metav1.ObjectMeta{Name: "overlap"}, Spec: netv1.AddressPoolSpec{CIDRs: []string{"192.168.0.0/24", "198.51.100.64/26"}},
		}, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "spec.cidrs: some of the addresses are those of AddressPool first (203.0.113.0/24, 198.51.100.0/25)")
	})
	require.ErrorContains(t, create("around", "203.0.0.0/16"), "AddressPool first")
	require.NoError(t, create("apart", "198.51.100.128/25"))
	first := &netv1.AddressPool{}
	require.NoError(t, w.Get(w.ctx, types.NamespacedName{Name: "first"}, first))
	grown := first.DeepCopy()
	grown.Spec.CIDRs = append(grown.Spec.CIDRs, "198.51.100.192/26")
	require.ErrorContains(t, w.Patch(w.ctx, grown, client.MergeFrom(first)), "AddressPool apart")
	grown.Spec.CIDRs = []string{"203.0.113.0/24", "198.51.100.0/25", "192.168.77.0/24"}
	require.NoError(t, w.Patch(w.ctx, grown, client.MergeFrom(first)), "a pool does not stand in its own way")
}
