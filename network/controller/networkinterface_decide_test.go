package controller

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

func TestAnInterfaceWaitsForItsNetworkAndKeepsWhatItHas(t *testing.T) {
	inUse := rival("front", "10.0.1.0/24", 1, confirmed)
	fresh := rival("front", "10.0.1.0/24", 1, newcomer)
	meta.SetStatusCondition(&fresh.Status.Conditions, metav1.Condition{
		Type: status.ConditionReady, Status: metav1.ConditionFalse, Reason: reasonCIDROverlap, Message: "spec.cidr: overlaps",
	})
	going := inUse.DeepCopy()
	going.DeletionTimestamp = ptr(metav1.Now())
	vpc := newVPC("a", "team")
	nic := func(change func(*netv1.NetworkInterface)) *netv1.NetworkInterface {
		pod := newPod("team", "web")
		pod.UID = "3f"
		n := newInterface(pod, inUse)
		change(n)
		return n
	}
	asIs := func(*netv1.NetworkInterface) {}
	allocated := func(n *netv1.NetworkInterface) { n.Status.Address = "10.0.1.7" }
	released := func(n *netv1.NetworkInterface) { detach(n); n.Status.ReleasedAt = ptr(metav1.Now()) }
	for _, tc := range []struct {
		name    string
		nic     *netv1.NetworkInterface
		subnet  *netv1.Subnet
		vpc     *netv1.VPC
		reason  string
		message string
	}{
		{"all is there", nic(asIs), inUse, vpc, "", ""},
		{"no Subnet", nic(asIs), nil, nil, reasonWaitingForSubnet, "spec.subnet: Subnet front does not exist yet"},
		{"no Subnet any more", nic(allocated), nil, nil, reasonWaitingForSubnet, "does not exist yet"},
		{"the Subnet is refused", nic(asIs), fresh, vpc, reasonWaitingForSubnet, "is not ready yet (spec.cidr: overlaps)"},
		{"the Subnet is to go", nic(asIs), going, vpc, reasonSubnetDeleting, "use another Subnet"},
		{"the Subnet is to go, but has given an address", nic(allocated), going, vpc, "", ""},
		{"no VPC", nic(asIs), inUse, nil, reasonWaitingForVPC, "VPC a of Subnet front does not exist"},
		{"not allowed", nic(asIs), inUse, newVPC("a"), reasonNamespaceRefused, "spec.namespace: VPC a of Subnet front does not allow Pods of namespace team"},
		{"not allowed any more", nic(allocated), inUse, newVPC("a"), "", ""},
		{"released without ever having an address", nic(released), inUse, vpc, reasonWaitingForPod, "when a Pod attaches"},
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
	network, ok := networkOf(rival("front", "10.0.1.0/24", 1, confirmed))
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
		{"another than its Pod uses", "10.0.1.8", "10.0.1.7", true, "10.0.1.8", reasonAddressInterface},
		{"another, and no Pod uses it", "10.0.1.8", "10.0.1.7", false, "10.0.1.8", ""},
		{"the gateway's", "10.0.1.1", "", true, "invalid IP", reasonAddressInvalid},
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
		reasonExhausted:      &ipam.ExhaustedError{CIDR: prefix("10.0.0.0/28")},
		reasonAddressInUse:   &ipam.InUseError{},
		reasonAddressInvalid: &ipam.InvalidAddressError{CIDR: prefix("10.0.0.0/28")},
	} {
		got, failure := asResult(err)
		require.NoError(t, failure)
		require.Equal(t, reason, got.Reason)
		require.Equal(t, err.Error(), got.Message)
	}
	full, _ := asResult(&ipam.ExhaustedError{CIDR: prefix("10.0.0.0/28")})
	require.Equal(t, conditions.Waiting(full.Reason, full.Message), full, "a full Subnet is a wait: it ends when another interface goes")
	broken := errors.New("no quorum")
	_, failure := asResult(broken)
	require.ErrorIs(t, failure, broken)
}

func TestHowLongAReleasedInterfaceKeepsItsAddresses(t *testing.T) {
	subnet := newSubnet("s", "a", "10.0.0.0/24")
	require.Equal(t, 10*time.Minute, leaseTTL(subnet))
	subnet.Spec.LeaseTTL = &metav1.Duration{Duration: time.Second}
	require.Equal(t, time.Second, leaseTTL(subnet))
	subnet.Spec.LeaseTTL.Duration = -time.Second
	require.Zero(t, leaseTTL(subnet))
	require.Zero(t, leaseTTL(nil), "nobody can take it again without the Subnet")
}

func TestADeletedSubnetWaitsForAttachedInterfacesFirst(t *testing.T) {
	attached := netv1.NetworkInterface{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Spec: netv1.NetworkInterfaceSpec{Pod: &netv1.PodReference{Namespace: "team", Name: "web"}}}
	idle := netv1.NetworkInterface{ObjectMeta: metav1.ObjectMeta{Name: "old-0"}}
	o, wait := await([]netv1.NetworkInterface{idle, attached})
	require.True(t, wait)
	require.Equal(t, conditions.Waiting(reasonWaitingForNICs, "the Subnet goes when the Pods with these NetworkInterfaces are deleted: web-0 (Pod team/web)"), o)
	o, wait = await([]netv1.NetworkInterface{idle})
	require.True(t, wait)
	require.Equal(t, conditions.Progressing(reasonWaitingForNICs, "deleting the NetworkInterfaces without Pods: old-0"), o)
	_, wait = await(nil)
	require.False(t, wait)
}

// Two controllers admit Subnets at once, each reading and writing at any moment. Whatever the order, no two that overlap
// are confirmed, and in the end one is.
func TestControllersAtOnceNeverConfirmTwoSubnetsThatOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 3
		var server [n]netv1.Subnet
		for i := range server {
			server[i] = *rival(string(rune('a'+i)), "10.0.0.0/24", rapid.Int64Range(1, 2).Draw(t, "second"), newcomer)
			server[i].ResourceVersion = "0"
		}
		exists := [n]bool{0: true}
		// Each Subnet's controller has a decision that it made on what it read, and writes later.
		type pending struct {
			decided bool
			what    verdict
			version string
		}
		var mind [n]pending
		read := func(i int) {
			var all []netv1.Subnet
			for j := range server {
				if exists[j] {
					all = append(all, *server[j].DeepCopy())
				}
			}
			got, _ := compete(&server[i], all)
			mind[i] = pending{true, got, server[i].ResourceVersion}
		}
		write := func(i int) {
			m := mind[i]
			mind[i] = pending{}
			if !m.decided || m.version != server[i].ResourceVersion || standingOf(&server[i]) == confirmed {
				return
			}
			switch {
			case m.what == refused:
				server[i].Status.VNI = 0
				meta.SetStatusCondition(&server[i].Status.Conditions, metav1.Condition{Type: status.ConditionStalled, Status: metav1.ConditionTrue, Reason: "x"})
			case m.what == undecided:
				return
			case standingOf(&server[i]) == newcomer:
				server[i].Status.VNI = uint32(1001 + i)
				meta.RemoveStatusCondition(&server[i].Status.Conditions, status.ConditionStalled)
			default:
				server[i].Status.GatewayMAC = "02:00:00:00:00:01"
			}
			server[i].ResourceVersion += "1"
		}
		confirmedOnes := func() (count int) {
			for i := range server {
				if standingOf(&server[i]) == confirmed {
					count++
				}
			}
			return count
		}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "who")
			switch {
			case !exists[i]:
				exists[i] = true
			case rapid.Bool().Draw(t, "read"):
				read(i)
			default:
				write(i)
			}
			if confirmedOnes() > 1 {
				t.Fatal("two are confirmed")
			}
		}
		for range 6 {
			for i := range server {
				exists[i] = true
				read(i)
				write(i)
			}
		}
		if confirmedOnes() != 1 {
			t.Fatalf("%d are confirmed in the end", confirmedOnes())
		}
	})
}
