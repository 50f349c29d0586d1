package claim

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

func TestAnInterfaceWaitsForItsNetworkAndKeepsWhatItHas(t *testing.T) {
	ready := inUse("front")
	fresh := newSubnet("front", "shop", "10.0.1.0/24")
	meta.SetStatusCondition(&fresh.Status.Conditions, metav1.Condition{
		Type: status.ConditionReady, Status: metav1.ConditionFalse, Reason: "CIDROverlap", Message: "spec.cidr: overlaps",
	})
	going := ready.DeepCopy()
	going.DeletionTimestamp = ptr.To(metav1.Now())
	vpc := newVPC("shop", "team")
	nic := func(change func(*netv1.NetworkInterface)) *netv1.NetworkInterface {
		pod := newPod("team", "web")
		pod.UID = "3f"
		n := NewInterface(pod, ready)
		change(n)
		return n
	}
	asIs := func(*netv1.NetworkInterface) {}
	allocated := func(n *netv1.NetworkInterface) { n.Status.Address = "10.0.1.7" }
	released := func(n *netv1.NetworkInterface) { Detach(n); n.Status.ReleasedAt = ptr.To(metav1.Now()) }
	for _, tc := range []struct {
		name    string
		nic     *netv1.NetworkInterface
		subnet  *netv1.Subnet
		vpc     *netv1.VPC
		reason  string
		message string
	}{
		{"all is there", nic(asIs), ready, vpc, "", ""},
		{"no Subnet", nic(asIs), nil, nil, ReasonWaitingForSubnet, "spec.subnet: Subnet front does not exist yet"},
		{"no Subnet any more", nic(allocated), nil, nil, ReasonWaitingForSubnet, "does not exist yet"},
		{"the Subnet is refused", nic(asIs), fresh, vpc, ReasonWaitingForSubnet, "is not ready yet (spec.cidr: overlaps)"},
		{"the Subnet is to go", nic(asIs), going, vpc, ReasonSubnetDeleting, "use another Subnet"},
		{"the Subnet is to go, but has given an address", nic(allocated), going, vpc, "", ""},
		{"no VPC", nic(asIs), ready, nil, ReasonWaitingForVPC, "VPC shop of Subnet front does not exist"},
		{"not allowed", nic(asIs), ready, newVPC("shop"), ReasonNamespaceRefused, "spec.namespace: VPC shop of Subnet front does not allow Pods of namespace team"},
		{"not allowed any more", nic(allocated), ready, newVPC("shop"), "", ""},
		{"released without ever having an address", nic(released), ready, vpc, ReasonWaitingForPod, "when a Pod attaches"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := checkNetwork(tc.nic, tc.subnet, tc.vpc)
			require.Equal(t, tc.reason == "", ok)
			require.Equal(t, tc.reason, got.Reason)
			require.Contains(t, got.Message, tc.message)
		})
	}
}

func TestWhichAddressAnInterfaceWants(t *testing.T) {
	network, ok := NetworkOf(inUse("front"))
	require.True(t, ok)
	for _, tc := range []struct {
		name         string
		asks, has    string
		attached     bool
		want, reason string
	}{
		{"any", "", "", true, "invalid IP", ""},
		{"any, and has one", "", "10.0.1.7", true, "invalid IP", ""},
		{"one", "10.0.1.7", "", true, "10.0.1.7", ""},
		{"the one it has", "10.0.1.7", "10.0.1.7", true, "10.0.1.7", ""},
		{"another than its Pod uses", "10.0.1.8", "10.0.1.7", true, "10.0.1.8", ReasonAddressInterface},
		{"another, and no Pod uses it", "10.0.1.8", "10.0.1.7", false, "10.0.1.8", ""},
		{"the gateway's", "10.0.1.1", "", true, "invalid IP", ReasonAddressInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nic := &netv1.NetworkInterface{Spec: netv1.NetworkInterfaceSpec{Address: tc.asks}, Status: netv1.NetworkInterfaceStatus{Address: tc.has}}
			if tc.attached {
				nic.Spec.Pod = &netv1.PodReference{}
			}
			want, _, o, ok := wanted(nic, network)
			require.Equal(t, tc.want, want.String())
			require.Equal(t, tc.reason == "", ok)
			require.Equal(t, tc.reason, o.Reason)
		})
	}
}

func TestRefusedAllocationsAreConditionsAndFailuresAreErrors(t *testing.T) {
	for reason, err := range map[string]error{
		ReasonExhausted:      &ipam.ExhaustedError{CIDR: netip.MustParsePrefix("10.0.0.0/28")},
		ReasonAddressInUse:   &ipam.InUseError{},
		ReasonAddressInvalid: &ipam.InvalidAddressError{CIDR: netip.MustParsePrefix("10.0.0.0/28")},
	} {
		got, failure := AsResult(err)
		require.NoError(t, failure)
		require.Equal(t, reason, got.Reason)
		require.Equal(t, err.Error(), got.Message)
	}
	full, _ := AsResult(&ipam.ExhaustedError{CIDR: netip.MustParsePrefix("10.0.0.0/28")})
	require.Equal(t, conditions.Waiting(full.Reason, full.Message), full, "a full Subnet is a wait: it ends when another interface goes")
	broken := errors.New("no quorum")
	_, failure := AsResult(broken)
	require.ErrorIs(t, failure, broken)
}
