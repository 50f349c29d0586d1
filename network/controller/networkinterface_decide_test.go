package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

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
