package ipam

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

var front = Network{Subnet: "front", VPC: "shop", VNI: 1001, CIDR: netip.MustParsePrefix("10.0.1.0/28")}

// store is an API server in memory.
func store(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, netv1.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithIndex(&netv1.IPLease{}, FieldInterfaceUID, func(o client.Object) []string {
		lease, ok := o.(*netv1.IPLease)
		require.True(t, ok)
		return []string{string(lease.Spec.InterfaceUID)}
	}).Build()
}

// lagging is a client whose reads come from a cache that has seen nothing yet.
type lagging struct {
	client.Client
	cache client.Reader
}

func (l lagging) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return l.cache.Get(ctx, key, o, opts...)
}

func (l lagging) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return l.cache.List(ctx, list, opts...)
}

func holder(name string) Holder { return Holder{Name: name, UID: types.UID("uid-of-" + name)} }

func names(t *testing.T, c client.Client) []string {
	t.Helper()
	var list netv1.IPLeaseList
	require.NoError(t, c.List(t.Context(), &list))
	var out []string
	for _, l := range list.Items {
		out = append(out, l.Name)
	}
	slices.Sort(out)
	return out
}

func TestALeaseSaysWhoHasTheAddress(t *testing.T) {
	c := store(t)
	a := &Allocator{Client: c, Live: c}
	address, err := a.Ensure(t.Context(), front, holder("web"), netip.Addr{}, netip.Addr{})
	require.NoError(t, err)
	var lease netv1.IPLease
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "1001." + address.String()}, &lease))
	require.Equal(t, netv1.IPLeaseSpec{Subnet: "front", Address: address.String(), Interface: "web", InterfaceUID: "uid-of-web"}, lease.Spec)
	require.Equal(t, map[string]string{netv1.LabelVPC: "shop", netv1.LabelSubnet: "front"}, lease.Labels)
}

// https://github.com/k8snetworkplumbingwg/whereabouts/issues/291
func TestAnInterfaceThatAsksAgainKeepsItsAddress(t *testing.T) {
	c := store(t)
	a := &Allocator{Client: c, Live: c}
	first, err := a.Ensure(t.Context(), front, holder("web"), netip.Addr{}, netip.Addr{})
	require.NoError(t, err)
	for range 20 {
		again, err := a.Ensure(t.Context(), front, holder("web"), netip.Addr{}, netip.Addr{})
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
	require.Len(t, names(t, c), 1)
}

func TestACacheThatLagsBehindDoesNotMakeASecondLease(t *testing.T) {
	c := store(t)
	a := &Allocator{Client: lagging{c, store(t)}, Live: c}
	first, err := a.Ensure(t.Context(), front, holder("web"), netip.Addr{}, netip.Addr{})
	require.NoError(t, err)
	again, err := a.Ensure(t.Context(), front, holder("web"), netip.Addr{}, netip.Addr{})
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Len(t, names(t, c), 1)
}

func TestASecondLeaseMadeBehindALaggingCacheIsFreedOnceBothAreSeen(t *testing.T) {
	c := store(t)
	lag := &Allocator{Client: lagging{c, store(t)}, Live: c}
	order := firstOf(Range{front.CIDR}, string(holder("web").UID), 2)
	_, _, err := lag.create(t.Context(), front, holder("db"), order[0])
	require.NoError(t, err)
	second, err := lag.Ensure(t.Context(), front, holder("web"), netip.Addr{}, netip.Addr{})
	require.NoError(t, err)
	require.Equal(t, order[1], second)

	require.NoError(t, (&Allocator{Client: c, Live: c}).ReleaseAll(t.Context(), holder("db")))
	first, err := lag.Ensure(t.Context(), front, holder("web"), netip.Addr{}, netip.Addr{})
	require.NoError(t, err)
	require.Equal(t, order[0], first)
	seeing := &Allocator{Client: c, Live: c}
	got, err := seeing.Ensure(t.Context(), front, holder("web"), netip.Addr{}, first)
	require.NoError(t, err)
	require.Equal(t, first, got)
	require.Equal(t, []string{LeaseName(1001, first)}, names(t, c))
}

func TestACacheThatLagsBehindDoesNotGiveAnAddressTwice(t *testing.T) {
	c := store(t)
	a := &Allocator{Client: lagging{c, store(t)}, Live: c}
	seen := map[netip.Addr]bool{}
	for i := range 13 {
		address, err := a.Ensure(t.Context(), front, holder(strconv.Itoa(i)), netip.Addr{}, netip.Addr{})
		require.NoError(t, err)
		require.False(t, seen[address], address)
		seen[address] = true
	}
	_, err := a.Ensure(t.Context(), front, holder("one too many"), netip.Addr{}, netip.Addr{})
	require.ErrorAs(t, err, new(*ExhaustedError))
}

func TestAFullRangeSaysWhatToDoAndServesAgainWhenAnAddressIsFree(t *testing.T) {
	c := store(t)
	a := &Allocator{Client: c, Live: c}
	for i := range 13 {
		_, err := a.Ensure(t.Context(), front, holder(strconv.Itoa(i)), netip.Addr{}, netip.Addr{})
		require.NoError(t, err)
	}
	_, err := a.Ensure(t.Context(), front, holder("late"), netip.Addr{}, netip.Addr{})
	var exhausted *ExhaustedError
	require.ErrorAs(t, err, &exhausted)
	require.Equal(t, uint64(13), exhausted.Capacity)
	require.EqualError(t, err, "spec.subnet: all 13 addresses of Subnet front (10.0.1.0/28) are in use; delete an interface in it, or use a Subnet with a larger CIDR")

	require.NoError(t, a.ReleaseAll(t.Context(), holder("7")))
	_, err = a.Ensure(t.Context(), front, holder("late"), netip.Addr{}, netip.Addr{})
	require.NoError(t, err)
}

func TestAnAddressAskedForIsGivenOrTheHolderIsNamed(t *testing.T) {
	c := store(t)
	a := &Allocator{Client: c, Live: c}
	want := netip.MustParseAddr("10.0.1.7")
	got, err := a.Ensure(t.Context(), front, holder("web"), want, netip.Addr{})
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = a.Ensure(t.Context(), front, holder("db"), want, netip.Addr{})
	require.EqualError(t, err, "spec.address: 10.0.1.7 of Subnet front is in use by NetworkInterface web; ask for another address, or delete that interface")
	require.ErrorAs(t, err, new(*InUseError))

	lag := &Allocator{Client: lagging{c, store(t)}, Live: c}
	_, err = lag.Ensure(t.Context(), front, holder("db"), want, netip.Addr{})
	var inUse *InUseError
	require.ErrorAs(t, err, &inUse)
	require.Equal(t, "web", inUse.Holder)
}

func TestAnotherAddressAskedForReplacesTheOldOneOnlyOnceItIsPublished(t *testing.T) {
	c := store(t)
	a := &Allocator{Client: c, Live: c}
	old, want := netip.MustParseAddr("10.0.1.6"), netip.MustParseAddr("10.0.1.7")
	_, err := a.Ensure(t.Context(), front, holder("web"), old, netip.Addr{})
	require.NoError(t, err)
	got, err := a.Ensure(t.Context(), front, holder("web"), want, old)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, []string{"1001.10.0.1.6", "1001.10.0.1.7"}, names(t, c), "the world is still told the old address")
	_, err = a.Ensure(t.Context(), front, holder("web"), want, want)
	require.NoError(t, err)
	require.Equal(t, []string{"1001.10.0.1.7"}, names(t, c))
}

// https://github.com/kubeovn/kube-ovn/issues/4898
func TestAnInterfaceWithSeveralLeasesKeepsThePublishedOne(t *testing.T) {
	c := store(t)
	a := &Allocator{Client: c, Live: c}
	for _, s := range []string{"10.0.1.5", "10.0.1.3", "10.0.1.9"} {
		_, _, err := a.create(t.Context(), front, holder("web"), netip.MustParseAddr(s))
		require.NoError(t, err)
	}
	published := netip.MustParseAddr("10.0.1.5")
	got, err := a.Ensure(t.Context(), front, holder("web"), netip.Addr{}, published)
	require.NoError(t, err)
	require.Equal(t, published, got)
	require.Equal(t, []string{"1001.10.0.1.5"}, names(t, c))
}

func TestALostLeaseIsMadeAgainUnlessSomebodyHasTheAddress(t *testing.T) {
	c := store(t)
	a := &Allocator{Client: c, Live: c}
	published := netip.MustParseAddr("10.0.1.5")
	got, err := a.Ensure(t.Context(), front, holder("web"), netip.Addr{}, published)
	require.NoError(t, err)
	require.Equal(t, published, got)
	_, err = a.Ensure(t.Context(), front, holder("db"), netip.Addr{}, published)
	require.ErrorAs(t, err, new(*InUseError))
}

func TestAnInterfaceOfTheSameNameIsAnotherHolder(t *testing.T) {
	c := store(t)
	a := &Allocator{Client: c, Live: c}
	first, err := a.Ensure(t.Context(), front, Holder{"web", "one"}, netip.Addr{}, netip.Addr{})
	require.NoError(t, err)
	second, err := a.Ensure(t.Context(), front, Holder{"web", "two"}, netip.Addr{}, netip.Addr{})
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.NoError(t, a.ReleaseAll(t.Context(), Holder{"web", "one"}))
	require.Equal(t, []string{LeaseName(1001, second)}, names(t, c))
}

// https://github.com/k8snetworkplumbingwg/whereabouts/issues/176
func TestALateReleaseDoesNotFreeTheAddressOfANewHolder(t *testing.T) {
	c := store(t)
	a := &Allocator{Client: c, Live: c}
	var sent *client.DeleteOptions
	a.Client = deleting{c, func(opts *client.DeleteOptions) { sent = opts }}
	require.NoError(t, a.Release(t.Context(), &netv1.IPLease{}))
	lease := &netv1.IPLease{}
	lease.Name, lease.UID = "1001.10.0.1.5", "old"
	require.NoError(t, a.Release(t.Context(), lease))
	require.Equal(t, types.UID("old"), *sent.Preconditions.UID, "the API server compares the identity")
}

// deleting shows what a delete is sent with.
type deleting struct {
	client.Client
	see func(*client.DeleteOptions)
}

func (d deleting) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	var all client.DeleteOptions
	all.ApplyOptions(opts)
	d.see(&all)
	return d.Client.Delete(ctx, o, opts...)
}

func TestFailuresOfTheServerAreNotTakenForAFullRange(t *testing.T) {
	broken := errors.New("no quorum")
	a := &Allocator{Client: lagging{failing{store(t), broken}, store(t)}, Live: store(t)}
	_, err := a.Ensure(t.Context(), front, holder("web"), netip.Addr{}, netip.Addr{})
	require.ErrorIs(t, err, broken)
}

type failing struct {
	client.Client
	err error
}

func (f failing) Create(context.Context, client.Object, ...client.CreateOption) error { return f.err }

func TestANameTooLongForALabelHasNone(t *testing.T) {
	long := string(make([]byte, 64))
	require.Empty(t, Labels(long, long))
}

func TestAnAddressOfTheDefaultSubnetIsNotGivenAgainDuringItsQuarantine(t *testing.T) {
	home := Network{Subnet: "default", VPC: "default", VNI: netv1.DefaultVNI, CIDR: netip.MustParsePrefix("198.18.0.0/30")}
	c := store(t)
	a := &Allocator{Client: c, Live: c, Quarantine: time.Minute}
	address, err := a.Ensure(t.Context(), home, holder("first"), netip.Addr{}, netip.Addr{})
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, a.ReleaseAll(t.Context(), holder("first")))
	}
	var lease netv1.IPLease
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: LeaseName(1, address)}, &lease))
	quarantine, released := a.QuarantineOf(&lease)
	require.True(t, released)
	require.Equal(t, time.Minute, quarantine)

	var inUse *InUseError
	var exhausted *ExhaustedError
	for _, name := range []string{"first", "second"} { // a former holder is nobody special: its interface is gone
		_, err = a.Ensure(t.Context(), home, holder(name), address, netip.Addr{})
		require.ErrorAs(t, err, &inUse)
		require.ErrorContains(t, err, "was given back just now")
		_, err = a.Ensure(t.Context(), home, holder(name), netip.Addr{}, netip.Addr{})
		require.ErrorAs(t, err, &exhausted)
		require.ErrorContains(t, err, "given back less than 1m0s ago")
	}
	behind := &Allocator{Client: lagging{c, store(t)}, Live: c, Quarantine: time.Minute}
	_, err = behind.Ensure(t.Context(), home, holder("first"), address, netip.Addr{})
	require.ErrorAs(t, err, &inUse, "the cache does not know of the lease")

	require.NoError(t, a.Delete(t.Context(), &lease))
	_, err = a.Ensure(t.Context(), home, holder("second"), address, netip.Addr{})
	require.NoError(t, err)
}

func TestATenantsAddressIsFreeAtOnce(t *testing.T) {
	c := store(t)
	a := &Allocator{Client: c, Live: c, Quarantine: time.Minute}
	address, err := a.Ensure(t.Context(), front, holder("first"), netip.Addr{}, netip.Addr{})
	require.NoError(t, err)
	require.NoError(t, a.ReleaseAll(t.Context(), holder("first")))
	_, err = a.Ensure(t.Context(), front, holder("second"), address, netip.Addr{})
	require.NoError(t, err)
}

// https://github.com/cilium/cilium/issues/10065
func TestALateReleaseDoesNotTouchTheAddressOfANewHolder(t *testing.T) {
	home := Network{Subnet: "default", VPC: "default", VNI: netv1.DefaultVNI, CIDR: netip.MustParsePrefix("198.18.0.0/30")}
	c := store(t)
	a := &Allocator{Client: c, Live: c, Quarantine: time.Minute}
	address, err := a.Ensure(t.Context(), home, holder("first"), netip.Addr{}, netip.Addr{})
	require.NoError(t, err)
	var stale netv1.IPLease
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: LeaseName(1, address)}, &stale))
	require.NoError(t, a.Delete(t.Context(), &stale))
	_, err = a.Ensure(t.Context(), home, holder("second"), address, netip.Addr{})
	require.NoError(t, err)
	var now netv1.IPLease
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: LeaseName(1, address)}, &now))
	now.Labels["changed"] = "" // the fake gives every new object one resourceVersion
	require.NoError(t, c.Update(t.Context(), &now))
	require.Error(t, a.Release(t.Context(), &stale), "a conflict: look again")
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: LeaseName(1, address)}, &now))
	require.Nil(t, now.Spec.ReleasedAt)
	require.Equal(t, "second", now.Spec.Interface)
}

// https://github.com/kubeovn/kube-ovn/issues/4243
func TestASubnetIsFullExactlyWhileItsLeasesSaySo(t *testing.T) {
	c := store(t)
	a := &Allocator{Client: c, Live: c}
	capacity := int(Range{front.CIDR}.Capacity())
	for round := range 3 {
		for i := range capacity {
			_, err := a.Ensure(t.Context(), front, holder(strconv.Itoa(round*100+i)), netip.Addr{}, netip.Addr{})
			require.NoError(t, err)
		}
		var full *ExhaustedError
		_, err := a.Ensure(t.Context(), front, holder("late"), netip.Addr{}, netip.Addr{})
		require.ErrorAs(t, err, &full)
		a = &Allocator{Client: c, Live: c} // a restart forgets nothing, as nothing is remembered
		for i := range capacity {
			for range 2 {
				require.NoError(t, a.ReleaseAll(t.Context(), holder(strconv.Itoa(round*100+i))))
			}
		}
		require.Empty(t, names(t, c))
	}
}
