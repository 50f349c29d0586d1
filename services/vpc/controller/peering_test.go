package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// newTenantNamed makes a namespace as it is a Tenant's. The name has its uniqueness at the end.
func newTenantNamed(t *testing.T, name string) (w *tenant, called string) {
	t.Helper()
	w = newTenant(t)
	called = name + "-" + strings.TrimPrefix(w.namespace, "tenant-")
	w.call(called)
	return w, called
}

// call gives the namespace the labels of a Tenant's.
func (w *tenant) call(name string) {
	w.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	w.read(ns)
	base := ns.DeepCopy()
	ns.Labels[authv1.LabelTenant] = name
	require.NoError(w.t, w.Patch(w.ctx, ns, client.MergeFrom(base)))
}

func (w *tenant) newPeering(name, vpc, peerTenant, peerVPC string) *vpcv1.VpcPeering {
	return &vpcv1.VpcPeering{ObjectMeta: w.meta(name), Spec: vpcv1.VpcPeeringSpec{VPC: vpc, Peer: vpcv1.VpcPeer{Tenant: peerTenant, VPC: peerVPC}}}
}

func (w *tenant) peering(name, vpc, peerTenant, peerVPC string) *vpcv1.VpcPeering {
	w.t.Helper()
	p := w.newPeering(name, vpc, peerTenant, peerVPC)
	require.NoError(w.t, w.Create(w.ctx, p))
	return p
}

// joins is what was made for a VpcPeering; nil when nothing is there.
func (w *tenant) joins(p *vpcv1.VpcPeering) *netv1.VPCPeering {
	w.t.Helper()
	made := named(&netv1.VPCPeering{}, string(p.UID))
	if !w.read(made) {
		return nil
	}
	return made
}

func (w *tenant) untilApart(p *vpcv1.VpcPeering) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.joins(p) == nil }, patience, 10*time.Millisecond, "nothing of the network's is left")
}

func TestTwoTenantsVpcsAreJoinedWhileBothAgree(t *testing.T) {
	a, alice := newTenantNamed(t, "alice")
	b, bob := newTenantNamed(t, "bob")
	startControllers(t)
	ours, theirs := a.vpc("main", "10.0.0.0/16"), b.vpc("data", "10.1.0.0/16")
	a.untilReady(ours)
	b.untilReady(theirs)
	asked := a.peering("to-bob", "main", bob, "data")
	silence := `waits until tenant ` + bob + ` agrees with a VpcPeering of its own, of its Vpc "data" with this Vpc "main"; nothing passes before`
	require.Equal(t, silence, a.untilReason(asked, "WaitingForPeer"))
	require.Equal(t, status.Pending, asked.Status.Phase)
	require.Nil(t, a.joins(asked), "one side makes nothing")
	require.Empty(t, asked.Status.PeerCIDR)

	agreed := b.peering("with-alice", "data", alice, "main")
	a.untilReady(asked)
	b.untilReady(agreed)
	require.Equal(t, []string{"10.1.0.0/16", "10.0.0.0/16"}, []string{asked.Status.PeerCIDR, agreed.Status.PeerCIDR})
	require.Equal(t, netv1.VPCPeeringSpec{VPC: string(ours.UID), Peer: string(theirs.UID)}, a.joins(asked).Spec)
	require.Equal(t, netv1.VPCPeeringSpec{VPC: string(theirs.UID), Peer: string(ours.UID)}, b.joins(agreed).Spec)
	for _, text := range []string{readyOf(asked).Message, readyOf(agreed).Message} {
		require.NotContains(t, text, string(ours.UID))
		require.NotContains(t, text, string(theirs.UID))
		require.NotContains(t, text, "tenant-", "no namespace")
	}

	// Either side ends it.
	require.NoError(t, b.Delete(b.ctx, agreed))
	b.untilGone(agreed)
	require.Equal(t, silence, a.untilReason(asked, "WaitingForPeer"))
	a.untilApart(asked)
	until(a, "it says nothing of the other side any more", asked, func(o *vpcv1.VpcPeering) bool { return o.Status.PeerCIDR == "" })
	agreed = b.peering("again", "data", alice, "main")
	a.untilReady(asked)
	require.NoError(t, a.Delete(a.ctx, asked))
	a.untilGone(asked)
	require.Nil(t, a.joins(asked))
	b.untilReason(agreed, "WaitingForPeer")
	b.untilApart(agreed)
}

// A tenant must not learn from its own object which tenants and Vpcs there are.
func TestAVpcPeeringSaysTheSameWhateverTheOtherSideHasUntilItAgrees(t *testing.T) {
	a, alice := newTenantNamed(t, "alice")
	b, bob := newTenantNamed(t, "bob")
	startControllers(t)
	a.untilReady(a.vpc("main", "10.0.0.0/16"))
	b.untilReady(b.vpc("there", "10.0.0.0/16"), b.vpc("elsewhere", "10.1.0.0/16"))
	b.peering("not-with-you", "there", "carol", "main")
	b.peering("not-this-vpc", "there", alice, "other")
	b.peering("not-of-that-vpc", "elsewhere", alice, "main")
	b.peering("unmade", "unmade", alice, "main") // it agrees, of a Vpc that it has not
	says := func(tenant, vpc string) (text string) {
		p := a.peering("p-"+uuid.NewString()[:8], "main", tenant, vpc)
		text = a.untilReason(p, "WaitingForPeer")
		require.Nil(t, a.joins(p))
		require.Equal(t, status.Pending, p.Status.Phase)
		require.NoError(t, a.Delete(a.ctx, p))
		return strings.NewReplacer(tenant, "TENANT", `"`+vpc+`"`, "VPC").Replace(text)
	}
	nobody := says("nobody", "nothing")
	for _, vpc := range []string{"there", "nothing", "unmade"} { // the first has an overlapping range, too
		require.Equal(t, nobody, says(bob, vpc), vpc)
	}
}

func TestAVpcPeeringThatCannotBeSaysWhyAndWhatHelps(t *testing.T) {
	a, alice := newTenantNamed(t, "alice")
	b, bob := newTenantNamed(t, "bob")
	startControllers(t)
	orphan := a.peering("orphan", "main", bob, "data")
	require.Contains(t, a.untilReason(orphan, "VpcNotFound"), `spec.vpc names Vpc "main", which does not exist in this namespace`)
	a.untilReady(a.vpc("main", "10.0.0.0/16"), a.vpc("wide", "10.0.0.0/8"))
	b.untilReady(b.vpc("data", "10.1.0.0/16"), b.vpc("part", "10.1.128.0/17"), b.vpc("same", "10.0.0.0/16"))
	a.untilReason(orphan, "WaitingForPeer")
	b.peering("data", "data", alice, "main")
	a.untilReady(orphan)

	itself := a.peering("itself", "main", alice, "main")
	require.Equal(t, "spec.peer names the Vpc itself; make a new VpcPeering that names another", a.untilReason(itself, "PeeringWithItself"))
	require.Equal(t, status.Error, itself.Status.Phase)
	twice := a.peering("twice", "main", bob, "data")
	require.Equal(t, `spec.peer: VpcPeering "orphan" joins the same Vpcs; delete one of the two`, a.untilReason(twice, "AlreadyPeered"))
	b.peering("same", "same", alice, "main")
	same := a.peering("same", "main", bob, "same")
	require.Equal(t, `spec.peer: the range 10.0.0.0/16 of Vpc "same" overlaps 10.0.0.0/16, that of Vpc "main"; peered Vpcs need ranges that do not: make one of the two anew with another`,
		a.untilReason(same, "CIDROverlap"))
	require.Nil(t, a.joins(same))

	// Another that overlaps one that is joined, whoever is older.
	back := b.peering("part", "part", alice, "main")
	part := a.peering("part", "main", bob, "part")
	require.Equal(t, `spec.peer: the range 10.1.128.0/17 of Vpc "part" overlaps 10.1.0.0/16, which VpcPeering "orphan" leads to; delete that one, or peer with a Vpc of another range`,
		a.untilReason(part, "CIDROverlap"))
	require.Equal(t, "both sides agree, and the other side's VpcPeering is not ready yet: it says there why; nothing passes before", b.untilReason(back, "PeerNotReady"))
	require.NoError(t, a.Delete(a.ctx, twice))
	require.NoError(t, a.Delete(a.ctx, orphan))
	a.untilReady(part)
	b.untilReady(back)
}

func TestVpcsOfOneTenantAreJoinedLikeOthers(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.untilReady(w.vpc("main", "10.0.0.0/16"), w.vpc("data", "10.1.0.0/16"))
	there := w.peering("there", "main", "", "data")
	require.Contains(t, w.untilReason(there, "WaitingForPeer"), "waits until this tenant agrees")
	back := w.peering("back", "data", "", "main")
	w.untilReady(there, back)
	vpc := named(&vpcv1.Vpc{}, "data")
	vpc.Namespace = w.namespace
	require.NoError(t, w.Delete(w.ctx, vpc)) // without the Dependency Controller nothing keeps it
	w.untilApart(there)
	w.untilApart(back)
	w.untilReason(back, "VpcNotFound")
	w.vpc("data", "10.2.0.0/16")
	w.untilReady(there, back)
	require.Equal(t, "10.2.0.0/16", there.Status.PeerCIDR)
}

// Who gets a tenant's name later is somebody else.
func TestATenantThatGetsAnothersNameIsNotJoined(t *testing.T) {
	a, b := newTenant(t), newTenant(t) // made by hand
	alice, bob := a.namespace, b.namespace
	startControllers(t)
	a.untilReady(a.vpc("main", "10.0.0.0/16"))
	b.untilReady(b.vpc("data", "10.1.0.0/16"))
	asked := a.peering("to-bob", "main", bob, "data")
	b.peering("to-alice", "data", alice, "main")
	a.untilReady(asked)

	heir := newTenant(t)
	heir.call(bob) // a Tenant of the name comes first
	heir.untilReady(heir.vpc("data", "10.1.0.0/16"))
	heir.peering("to-alice", "data", alice, "main")
	require.Contains(t, a.untilReason(asked, "PeerTenantReplaced"), "tenant "+bob+" is another one than that with which this was agreed, which is gone; make a new VpcPeering")
	a.untilApart(asked)
	require.NoError(t, a.Delete(a.ctx, asked))
	a.untilReady(a.peering("to-the-heir", "main", bob, "data"))
}

func TestTheAPIServerRefusesVpcPeeringsThatCannotBe(t *testing.T) {
	w := newTenant(t)
	for says, p := range map[string]*vpcv1.VpcPeering{
		"a Vpc is not peered with itself":                           w.newPeering("p", "main", "", "main"),
		"vpc must be the name of a Vpc of the same tenant":          w.newPeering("p", "blue/main", "", "data"),
		"vpc must be the name of a Vpc, such as main":               w.newPeering("p", "main", "", "blue/data"),
		"tenant must be the name of a tenant":                       w.newPeering("p", "main", "Bob!", "data"),
		"metadata.name must be at most 63 characters":               w.newPeering("a.b", "main", "", "data"),
		"spec.peer.vpc: Invalid value":                              w.newPeering("p", "main", "bob", ""),
		"spec.peer.tenant: Too long: may not be more than 63 bytes": w.newPeering("p", "main", strings.Repeat("b", 64), "data"),
	} {
		err := w.Create(w.ctx, p)
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		require.ErrorContains(t, err, says)
	}
	p := w.peering("p", "main", "bob", "main")
	p.Spec.Peer.Tenant = "carol"
	require.ErrorContains(t, w.Update(w.ctx, p), "peer cannot be changed; make a new VpcPeering")
	w.read(p)
	p.Spec.VPC = "data"
	require.ErrorContains(t, w.Update(w.ctx, p), "vpc cannot be changed; make a new VpcPeering")
}
