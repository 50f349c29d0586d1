package instance

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnInstanceKeepsItsSlotUntilItIsReset(t *testing.T) {
	r := Registry{Dir: t.TempDir()}
	first, err := r.Take("first")
	require.NoError(t, err)
	second, err := r.Take("second")
	require.NoError(t, err)
	require.NotEqual(t, first.Slot, second.Slot)
	require.NoError(t, r.Release("first"))
	again, err := r.Take("second")
	require.NoError(t, err)
	require.Equal(t, second, again)
	third, err := r.Take("third")
	require.NoError(t, err)
	require.Equal(t, first.Slot, third.Slot, "a released slot is taken again")
}

func TestTheDefaultInstanceAlwaysHasSlotZero(t *testing.T) {
	r := Registry{Dir: t.TempDir()}
	_, err := r.Take("other")
	require.NoError(t, err)
	got, err := r.Take(Default)
	require.NoError(t, err)
	require.Equal(t, Instance{Name: Default, Slot: 0}, got)
}

func TestStartsAtTheSameTimeGetDifferentSlots(t *testing.T) {
	r := Registry{Dir: t.TempDir()}
	var group sync.WaitGroup
	slots := make([]int, MaxSlot)
	for i := range slots {
		group.Go(func() {
			inst, err := r.Take(fmt.Sprintf("i%d", i))
			if err == nil {
				slots[i] = inst.Slot
			}
		})
	}
	group.Wait()
	require.ElementsMatch(t, []int{1, 2, 3, 4, 5, 6, 7, 8}, slots)
	_, err := r.Take("one-more")
	require.ErrorContains(t, err, "all 8 slots")
	require.ErrorContains(t, err, "mni reset")
	_, ok, err := r.Find("one-more")
	require.NoError(t, err)
	require.False(t, ok, "a refused instance is not remembered")
}

func TestADamagedListOfInstancesIsNamed(t *testing.T) {
	r := Registry{Dir: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(r.Dir, "instances.json"), []byte("{"), 0o600))
	_, err := r.Take("x")
	require.ErrorContains(t, err, "instances.json is damaged")
}

func TestNamesThatDoNotFitAreRefused(t *testing.T) {
	for _, name := range []string{"", "-a", "a-", "A", "a_b", "a/b", "..", "0", "abcdefghijklmnopqrstu"} {
		require.Error(t, ValidateName(name), "%q", name)
	}
	for _, name := range []string{"a", "default", "e2e", "a-b", "abcdefghijklmnopqrst"} {
		require.NoError(t, ValidateName(name), "%q", name)
	}
}

func TestInstancesNeverShareAddressesPortsOrNames(t *testing.T) {
	reserved := netip.MustParsePrefix("198.18.0.0/15")
	var ranges []netip.Prefix
	ports, names := map[int]bool{}, map[string]bool{}
	for slot := range MaxSlot + 1 {
		inst := Instance{Name: fmt.Sprintf("i%d", slot), Slot: slot}
		a := inst.Addresses()
		for _, r := range a.Ranges() {
			require.Equal(t, r.Masked(), r)
			require.True(t, reserved.Contains(r.Addr()), "%s is reserved in every VPC", r)
			for _, other := range ranges {
				require.False(t, r.Overlaps(other), "%s and %s", r, other)
			}
			ranges = append(ranges, r)
		}
		require.True(t, a.Underlay.Contains(a.Machine))
		require.True(t, a.Services.Contains(a.DNS))
		require.False(t, ports[a.VXLANPort])
		ports[a.VXLANPort] = true
		nodes := inst.Nodes(MaxNodes)
		require.True(t, a.Underlay.Contains(nodes[MaxNodes-1].Address()))
		require.NotEqual(t, a.Machine, nodes[0].Address())
		for _, name := range []string{inst.UplinkName(), inst.Table(), inst.SwitchNetns(), nodes[0].Netns(), inst.Cgroup()} {
			require.False(t, names[name], name)
			names[name] = true
		}
		require.LessOrEqual(t, len(inst.UplinkName()), 15, "the kernel's limit for a link's name")
	}
}

func TestARangeThatTheMachineUsesIsAConflict(t *testing.T) {
	a := Instance{Name: Default}.Addresses()
	_, _, found := a.Conflict([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("192.0.2.0/24")})
	require.False(t, found, "a default route is no conflict")
	ours, theirs, found := a.Conflict([]netip.Prefix{netip.MustParsePrefix("198.18.5.0/24")})
	require.True(t, found)
	require.Equal(t, a.Infrastructure, ours)
	require.Equal(t, "198.18.5.0/24", theirs.String())
}
