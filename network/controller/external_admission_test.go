package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func TestTheAPIServerRefusesExternalObjectsThatCannotBe(t *testing.T) {
	w := idleWorld(t)
	named := metav1.ObjectMeta{GenerateName: "refused-"}
	block := func(name, address string, first, size int32) *netv1.PortBlock {
		return &netv1.PortBlock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.PortBlockSpec{
			Address: address, FirstPort: first, Size: size, Node: "n", NATGateway: "g",
		}}
	}
	for name, c := range map[string]struct {
		object client.Object
		says   string
	}{
		"an address that is none":      {&netv1.ExternalIP{ObjectMeta: named, Spec: netv1.ExternalIPSpec{Address: "203.0.113"}}, "spec.address"},
		"an IPv6 address":              {&netv1.ExternalIP{ObjectMeta: named, Spec: netv1.ExternalIPSpec{Address: "2001:db8::1"}}, "IPv6 is not supported yet"},
		"a FloatingIP of nothing":      {&netv1.FloatingIP{ObjectMeta: named}, "spec.externalIP"},
		"a gateway of the default VPC": {&netv1.NATGateway{ObjectMeta: named, Spec: netv1.NATGatewaySpec{VPC: "default", ExternalIPs: []string{"e"}}}, "hosts translate for ordinary Pods"},
		"a gateway without addresses":  {&netv1.NATGateway{ObjectMeta: named, Spec: netv1.NATGatewaySpec{VPC: "v", ExternalIPs: []string{}}}, "spec.externalIPs"},
		"one address twice":            {&netv1.NATGateway{ObjectMeta: named, Spec: netv1.NATGatewaySpec{VPC: "v", ExternalIPs: []string{"e", "e"}}}, "Duplicate value"},
		"a block between two":          {block("203.0.113.5.1100", "203.0.113.5", 1100, 512), "firstPort must be a multiple of 512"},
		"a block of low ports":         {block("203.0.113.5.512", "203.0.113.5", 512, 512), "greater than or equal to 1024"},
		"a larger block":               {block("203.0.113.5.1024", "203.0.113.5", 1024, 1024), "size must be 512"},
	} {
		t.Run(name, func(t *testing.T) {
			err := w.Create(t.Context(), c.object)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestWhatExternalObjectsAreCannotBeChanged(t *testing.T) {
	w := idleWorld(t)
	eip := &netv1.ExternalIP{ObjectMeta: metav1.ObjectMeta{GenerateName: "e-"}}
	require.NoError(t, w.Create(t.Context(), eip))
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(w.Delete(w.ctx, eip))) })
	require.Equal(t, netv1.DefaultAddressPool, eip.Spec.Pool)
	refused := func(o client.Object, says string) {
		t.Helper()
		err := w.Update(t.Context(), o)
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		require.ErrorContains(t, err, says)
	}
	changed := eip.DeepCopy()
	changed.Spec.Address = "203.0.113.5"
	refused(changed, "spec.address cannot be changed")
	changed = eip.DeepCopy()
	changed.Spec.Pool = "other"
	refused(changed, "pool cannot be changed")
	changed = eip.DeepCopy()
	changed.Spec.Shared = true
	refused(changed, "spec.shared cannot be changed")
	fip := &netv1.FloatingIP{ObjectMeta: metav1.ObjectMeta{GenerateName: "f-"}, Spec: netv1.FloatingIPSpec{ExternalIP: "a"}}
	require.NoError(t, w.Create(t.Context(), fip))
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(w.Delete(w.ctx, fip))) })
	moved := fip.DeepCopy()
	moved.Spec.NetworkInterface = "nic"
	require.NoError(t, w.Update(t.Context(), moved), "a FloatingIP may move")
	moved.Spec.ExternalIP = "b"
	refused(moved, "externalIP cannot be changed")
	block := &netv1.PortBlock{ObjectMeta: metav1.ObjectMeta{Name: "203.0.113.5.65024"}, Spec: netv1.PortBlockSpec{
		Address: "203.0.113.5", FirstPort: 65024, Size: netv1.PortBlockSize, Node: "n", NATGateway: "g",
	}}
	require.NoError(t, w.Create(t.Context(), block))
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(w.Delete(w.ctx, block))) })
	taken := block.DeepCopy()
	taken.Spec.Node = "another"
	refused(taken, "spec cannot be changed")
	now := metav1.NowMicro()
	block.Spec.ReleasedAt = &now
	require.NoError(t, w.Update(t.Context(), block), "it may be released")
	again := block.DeepCopy()
	later := metav1.NewMicroTime(now.Add(time.Second))
	for _, at := range []*metav1.MicroTime{nil, &later} {
		again.Spec.ReleasedAt = at
		refused(again, "what was released stays so")
	}
}

func TestANodeWritesOfItselfOnly(t *testing.T) {
	w := idleWorld(t)
	w.policies()
	as := func(user, group string) client.Client {
		config := rest.CopyConfig(w.server)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{group, "system:masters"}}
		c, err := client.New(config, client.Options{Scheme: testScheme()})
		require.NoError(t, err)
		return c
	}
	block := func(name, node string) *netv1.PortBlock {
		return &netv1.PortBlock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.PortBlockSpec{
			Address: "203.0.113.5", FirstPort: 1024, Size: netv1.PortBlockSize, Node: node, NATGateway: "g",
		}}
	}
	w.eventually("the policy is enforced", func() bool {
		err := w.Create(w.ctx, block("203.0.113.5.01024", "a"), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "metadata.name must be spec.address, a dot and spec.firstPort (203.0.113.5.1024)")
	})
	netd := as("system:mni:netd:a", "system:mni:netd")
	require.ErrorContains(t, netd.Create(w.ctx, block("203.0.113.5.1024", "b")), "may make and delete its own node's PortBlocks only, not those of b")
	require.NoError(t, netd.Create(w.ctx, block("203.0.113.5.1024", "a")))
	other := as("system:mni:netd:b", "system:mni:netd")
	require.ErrorContains(t, other.Delete(w.ctx, block("203.0.113.5.1024", "a")), "not those of a")
	require.True(t, apierrors.IsAlreadyExists(other.Create(w.ctx, block("203.0.113.5.1024", "b"))), "the name is the lock")
	require.NoError(t, netd.Delete(w.ctx, block("203.0.113.5.1024", "a")))

	peer := &netv1.BGPPeer{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: netv1.BGPPeerSpec{ASN: 64513, Address: "192.0.2.254"}}
	require.NoError(t, w.Create(w.ctx, peer))
	t.Cleanup(func() { require.NoError(t, w.Delete(w.ctx, peer)) })
	bgpd := as("system:mni:bgpd:a", "system:mni:bgpd")
	report := func(node string) error {
		base := peer.DeepCopy()
		peer.Status.Sessions = append(peer.Status.Sessions, netv1.BGPSession{Node: node, State: netv1.BGPConnecting})
		err := bgpd.Status().Patch(w.ctx, peer, client.MergeFrom(base))
		if err != nil {
			peer.Status = base.Status
		}
		return err
	}
	w.eventually("the policy is enforced", func() bool {
		err := report("b")
		return err != nil && strings.Contains(err.Error(), "node a may report its own session only")
	})
	require.NoError(t, report("a"))
	base := peer.DeepCopy()
	peer.Status.Phase = "Ready"
	require.ErrorContains(t, bgpd.Status().Patch(w.ctx, peer, client.MergeFrom(base)), "a node may report its session only")
	require.NoError(t, w.Status().Patch(w.ctx, peer, client.MergeFrom(base)), "the controller may")
}

func TestAPoolInUseIsNotShrunkAndNotDeleted(t *testing.T) {
	w := idleWorld(t)
	w.policies()
	pool := &netv1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "used"}, Spec: netv1.AddressPoolSpec{CIDRs: []string{"203.0.113.0/28", "198.51.100.0/28"}}}
	require.NoError(t, w.Create(w.ctx, pool))
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(w.Delete(w.ctx, pool))) })
	eip := &netv1.ExternalIP{ObjectMeta: metav1.ObjectMeta{Name: "user"}, Spec: netv1.ExternalIPSpec{Pool: "used"}}
	require.NoError(t, w.Create(w.ctx, eip))
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(w.Delete(w.ctx, eip))) })
	eip.Status.Address, eip.Status.Pool = "203.0.113.5", "used"
	require.NoError(t, w.Status().Update(w.ctx, eip))
	const says = "spec.cidrs: AddressPool used must keep 203.0.113.5, which is ExternalIP user's; delete that one first"
	to := func(cidrs ...string) error {
		base := pool.DeepCopy()
		changed := pool.DeepCopy()
		changed.Spec.CIDRs = cidrs
		return w.Patch(w.ctx, changed, client.MergeFrom(base), client.DryRunAll)
	}
	w.eventually("the policy is enforced", func() bool {
		err := to("198.51.100.0/28")
		return err != nil && strings.Contains(err.Error(), says)
	})
	require.NoError(t, to("203.0.113.0/29"), "what is not in use may go")
	require.ErrorContains(t, w.Delete(w.ctx, pool, client.DryRunAll), says)
	require.NoError(t, w.Delete(w.ctx, eip))
	w.eventually("without users it may be shrunk", func() bool { return to("198.51.100.0/28") == nil })
}
