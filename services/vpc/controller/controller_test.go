package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend/netbackend"
)

func TestAVpcAndItsSubnetsBecomeReadyOnTheNetwork(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	vpc := w.vpc("main", "10.0.0.0/16")
	web, db := w.subnet("web", "main", "10.0.1.0/24"), w.subnet("db", "main", "10.0.2.0/24")
	w.untilReady(vpc, web, db)

	require.Equal(t, status.Ready, vpc.Status.Phase)
	require.Equal(t, "10.0.1.1", web.Status.GatewayAddress)
	require.Equal(t, map[string]string{"net.mnicloud.jp/subnet": string(web.UID)}, web.Status.Attachment.PodAnnotations)

	projected := &netv1.VPC{}
	require.NoError(t, w.Get(w.ctx, client.ObjectKey{Name: string(vpc.UID)}, projected))
	require.Equal(t, []string{w.namespace}, projected.Spec.Namespaces, "only the tenant's Pods may join")
	require.Equal(t, "main", projected.Labels[netbackend.LabelName])
	part := &netv1.Subnet{}
	require.NoError(t, w.Get(w.ctx, client.ObjectKey{Name: string(db.UID)}, part))
	require.Equal(t, netv1.SubnetSpec{VPC: string(vpc.UID), CIDR: "10.0.2.0/24", LeaseTTL: part.Spec.LeaseTTL}, part.Spec)
}

func TestASubnetWaitsForItsVpcAndStartsAtOnceWhenItComes(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	subnet := w.subnet("web", "main", "10.0.1.0/24")
	message := w.untilReason(subnet, "VpcNotFound")
	require.Contains(t, message, `spec.vpc names Vpc "main"`)
	require.Equal(t, status.Pending, subnet.Status.Phase)
	require.Empty(t, subnet.Finalizers, "nothing was made for it, so it may go freely")

	begin := time.Now()
	w.vpc("main", "10.0.0.0/16")
	w.untilReady(subnet)
	require.Less(t, time.Since(begin), 5*time.Second)
}

func TestAVpcOfAnotherTenantIsNotFound(t *testing.T) {
	a, b := newTenant(t), newTenant(t)
	startControllers(t)
	a.untilReady(a.vpc("main", "10.0.0.0/16"))
	b.untilReason(b.subnet("web", "main", "10.0.1.0/24"), "VpcNotFound")
}

func TestARefusedRangeIsToldAndNothingIsMade(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	reserved := w.vpc("reserved", "172.30.0.0/20")
	require.Contains(t, w.untilReason(reserved, "CIDRReserved"), "172.30.0.0/16")
	require.Equal(t, status.Error, reserved.Status.Phase)
	require.Contains(t, w.untilReason(w.subnet("r", "reserved", "172.30.1.0/24"), "VpcNotReady"), "meets the reserved range")

	w.untilReady(w.vpc("main", "10.0.0.0/16"))
	outside := w.subnet("outside", "main", "10.1.0.0/24")
	require.Contains(t, w.untilReason(outside, "CIDROutsideVPC"), `10.0.0.0/16, the range of Vpc "main"`)
	require.Equal(t, status.Error, outside.Status.Phase)
	for _, uid := range []client.Object{reserved, outside} {
		require.Empty(t, uid.GetFinalizers())
		require.False(t, w.read(named(&netv1.VPC{}, string(uid.GetUID()))))
		require.False(t, w.read(named(&netv1.Subnet{}, string(uid.GetUID()))))
	}
}

func TestOfTwoSubnetsThatOverlapTheEarlierWinsAndTheOtherFollowsWhenItGoes(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.vpc("main", "10.0.0.0/16")
	first := w.subnet("first", "main", "10.0.1.0/24")
	w.untilReady(first)
	second := w.subnet("second", "main", "10.0.1.128/25")
	require.Contains(t, w.untilReason(second, "CIDROverlap"), `overlaps 10.0.1.0/24 of Subnet "first"`)
	require.Nil(t, second.Status.Attachment)

	require.NoError(t, w.Delete(w.ctx, first))
	w.untilReady(second)
}

func TestTwoTenantsMayHaveTheSameRanges(t *testing.T) {
	a, b := newTenant(t), newTenant(t)
	startControllers(t)
	for _, w := range []*tenant{a, b} {
		w.untilReady(w.vpc("main", "10.0.0.0/16"), w.subnet("web", "main", "10.0.1.0/24"))
	}
}

func TestOfManySubnetsOfOneRangeMadeAtOnceExactlyOneIsMade(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.untilReady(w.vpc("main", "10.0.0.0/16"))
	var subnets []*vpcv1.Subnet
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		subnets = append(subnets, w.subnet(name, "main", "10.0.1.0/24"))
	}
	for _, subnet := range subnets {
		until(w, "is decided", subnet, func(s *vpcv1.Subnet) bool {
			return s.Status.Phase == status.Ready || s.Status.Phase == status.Error
		})
	}
	ready := 0
	for _, subnet := range subnets {
		if subnet.Status.Phase == status.Ready {
			ready++
		}
	}
	require.Equal(t, 1, ready)
}

func TestAVpcWaitsForItsSubnetsAndASubnetForItsUse(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	vpc, web, db := w.vpc("main", "10.0.0.0/16"), w.subnet("web", "main", "10.0.1.0/24"), w.subnet("db", "main", "10.0.2.0/24")
	w.untilReady(vpc, web, db)
	nic := w.interfaceIn(web, "Container web-0")
	until(w, "has an address", nic, func(n *netv1.NetworkInterface) bool { return n.Status.Address != "" })

	require.NoError(t, w.Delete(w.ctx, vpc))
	require.Contains(t, w.untilReason(vpc, "HasSubnets"), "db, web")
	require.Equal(t, status.Deleting, vpc.Status.Phase)
	require.Contains(t, w.untilReason(w.subnet("late", "main", "10.0.3.0/24"), "VpcDeleting"), "delete this Subnet too")

	require.NoError(t, w.Delete(w.ctx, web))
	require.Contains(t, w.untilReason(web, "InUse"), "Container web-0")
	require.NoError(t, w.Delete(w.ctx, db))
	w.untilGone(db)
	require.True(t, w.read(nic), "an address in use is not taken away")

	require.NoError(t, w.Delete(w.ctx, nic))
	w.untilGone(web)
	w.untilGone(vpc)
	w.untilNothingOf(vpc, web, db)
}

func TestWhatWasMadeIsMadeAgainWhenSomebodyDeletesIt(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	vpc, web := w.vpc("main", "10.0.0.0/16"), w.subnet("web", "main", "10.0.1.0/24")
	w.untilReady(vpc, web)
	part := named(&netv1.Subnet{}, string(web.UID))
	require.True(t, w.read(part))
	before := part.UID
	require.NoError(t, w.Delete(w.ctx, part))
	until(w, "is made again", part, func(s *netv1.Subnet) bool { return s.UID != before && s.DeletionTimestamp == nil })
	w.untilReady(web)
}

func TestWhatOthersHoldWithAFinalizerIsDeletingAndSaysSo(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	vpc, web := w.vpc("main", "10.0.0.0/16"), w.subnet("web", "main", "10.0.1.0/24")
	w.untilReady(vpc, web)
	refused := w.subnet("refused", "main", "10.9.0.0/24")
	w.untilReason(refused, "CIDROutsideVPC")
	for _, obj := range []client.Object{web, refused, vpc} {
		require.True(t, w.read(obj))
		patch := client.MergeFrom(obj.DeepCopyObject().(client.Object))
		obj.SetFinalizers(append(obj.GetFinalizers(), "example.com/backup"))
		require.NoError(t, w.Patch(w.ctx, obj, patch))
		require.NoError(t, w.Delete(w.ctx, obj))
		require.Contains(t, w.untilReason(obj, "FinalizersRemain"), "example.com/backup")
	}
	require.Equal(t, status.Deleting, web.Status.Phase)
	require.Equal(t, status.Deleting, refused.Status.Phase)
	for _, obj := range []client.Object{web, refused, vpc} {
		require.True(t, w.read(obj))
		require.NoError(t, w.Patch(w.ctx, obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		w.untilGone(obj)
	}
}

func TestWhatWasMadeForObjectsThatVanishedIsCollected(t *testing.T) {
	w := newTenant(t)
	startNetwork(t)
	stop := runControllers(t, nil)
	vpc, web := w.vpc("main", "10.0.0.0/16"), w.subnet("web", "main", "10.0.1.0/24")
	w.untilReady(vpc, web)
	stop()

	// Somebody takes the finalizers away while no controller runs, and the name is used again.
	for _, obj := range []client.Object{web, vpc} {
		require.NoError(t, w.Delete(w.ctx, obj))
		require.True(t, w.read(obj))
		require.NoError(t, w.Patch(w.ctx, obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		require.False(t, w.read(obj))
	}
	again := w.vpc("main", "10.9.0.0/16")
	t.Cleanup(runControllers(t, nil))
	w.untilReady(again)
	w.untilNothingOf(vpc, web)
}

// named gives an object of the network's a name.
func named[T client.Object](obj T, name string) T {
	obj.SetName(name)
	return obj
}

// untilNothingOf waits for nothing of the network's to be left of the tenant's objects.
func (w *tenant) untilNothingOf(objects ...client.Object) {
	w.t.Helper()
	for _, obj := range objects {
		w.untilGone(named(&netv1.VPC{}, string(obj.GetUID())))
		w.untilGone(named(&netv1.Subnet{}, string(obj.GetUID())))
		w.untilGone(named(&netv1.SecurityGroup{}, string(obj.GetUID())))
		w.untilGone(named(&netv1.RouteTable{}, string(obj.GetUID())))
	}
}
