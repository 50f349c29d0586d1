package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

func (w *tenant) group(name string, spec vpcv1.SecurityGroupSpec) *vpcv1.SecurityGroup {
	w.t.Helper()
	group := &vpcv1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: spec}
	require.NoError(w.t, w.Create(w.ctx, group))
	return group
}

func fromGroup(name string) vpcv1.SecurityGroupSpec {
	return vpcv1.SecurityGroupSpec{Ingress: []vpcv1.SecurityGroupRule{
		{Protocol: vpcv1.RuleTCP, Port: ptr.To[int32](5432), EndPort: ptr.To[int32](5433), SecurityGroup: &name},
	}}
}

func TestASecurityGroupIsProjectedByUIDAndItsPeersToo(t *testing.T) {
	w, other := newTenant(t), newTenant(t)
	startControllers(t)
	other.untilReady(other.group("web", vpcv1.SecurityGroupSpec{}))
	db := w.group("db", fromGroup("web"))
	require.Contains(t, w.untilReason(db, "SecurityGroupNotFound"), "do not exist in this namespace, and allow nothing until they do: web")
	made := &netv1.SecurityGroup{}
	require.NoError(t, w.Get(w.ctx, client.ObjectKey{Name: string(db.UID)}, made))
	require.Len(t, made.Spec.Ingress, 1, "the rule stays, and allows nothing")

	web := w.group("web", vpcv1.SecurityGroupSpec{Egress: []vpcv1.SecurityGroupRule{
		{Protocol: vpcv1.RuleICMP, ICMPType: ptr.To[int32](8), ICMPCode: ptr.To[int32](0), CIDR: ptr.To("10.0.0.0/8")},
	}})
	w.untilReady(db, web)
	require.NoError(t, w.Get(w.ctx, client.ObjectKey{Name: string(db.UID)}, made))
	require.Equal(t, netv1.SecurityGroupSpec{Namespace: w.namespace, Ingress: []netv1.SecurityGroupRule{
		{Protocol: netv1.RuleTCP, Port: ptr.To[int32](5432), EndPort: ptr.To[int32](5433), SecurityGroup: ptr.To(string(web.UID))},
	}}, made.Spec)
	require.NoError(t, w.Get(w.ctx, client.ObjectKey{Name: string(web.UID)}, made))
	require.Equal(t, netv1.SecurityGroupSpec{Namespace: w.namespace, Egress: []netv1.SecurityGroupRule{
		{Protocol: netv1.RuleICMP, ICMPType: ptr.To[int32](8), ICMPCode: ptr.To[int32](0), CIDR: ptr.To("10.0.0.0/8")},
	}}, made.Spec)

	// Another of the same name is another group.
	require.NoError(t, w.Delete(w.ctx, web))
	w.untilGone(web)
	w.untilReason(db, "SecurityGroupNotFound")
	again := w.group("web", vpcv1.SecurityGroupSpec{})
	w.untilReady(db)
	require.NoError(t, w.Get(w.ctx, client.ObjectKey{Name: string(db.UID)}, made))
	require.Equal(t, string(again.UID), *made.Spec.Ingress[0].SecurityGroup)
}

func TestASecurityGroupStaysWhileSomethingIsInIt(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.vpc("main", "10.0.0.0/16")
	subnet := w.subnet("web", "main", "10.0.1.0/24")
	group := w.group("web", fromGroup("web"))
	w.untilReady(subnet, group)
	nic := w.interfaceIn(subnet, "Container web-0")
	nic.Spec.SecurityGroups = []string{string(group.UID)}
	require.NoError(t, w.Patch(w.ctx, nic, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"securityGroups":["`+string(group.UID)+`"]}}`))))
	until(w, "the interface's groups are known", nic, func(n *netv1.NetworkInterface) bool { return len(n.Status.Conditions) > 1 })
	require.NoError(t, w.Delete(w.ctx, group))
	require.Contains(t, w.untilReason(group, "InUse"), "Container web-0")
	require.NoError(t, w.Patch(w.ctx, nic, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"securityGroups":null}}`))))
	w.untilGone(group)
	require.False(t, w.read(named(&netv1.SecurityGroup{}, string(group.UID))))
	require.NoError(t, w.Delete(w.ctx, nic))
}
