package controller

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/dependency"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// met does the Dependency Controller's part.
func (w *tenant) met(obj client.Object, yes bool) {
	w.t.Helper()
	require.True(w.t, w.read(obj))
	body := fmt.Sprintf(`{"status":{"dependencies":{"observedGeneration":%d,"met":%t,"reason":"DependencyNotReady","message":"spec.dependsOn[0] names Vpc \"base\", which is not ready yet"}}}`, obj.GetGeneration(), yes)
	require.NoError(w.t, w.Status().Patch(w.ctx, obj, client.RawPatch(types.MergePatchType, []byte(body))))
}

// guard puts the Dependency Controller's finalizer on, or takes it away.
func (w *tenant) guard(obj client.Object, on bool) {
	w.t.Helper()
	require.True(w.t, w.read(obj))
	body := fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, vpcv1.Finalizer)
	if on {
		body = fmt.Sprintf(`{"metadata":{"finalizers":[%q,%q]},"status":{}}`, vpcv1.Finalizer, dependency.Guard)
	}
	require.NoError(w.t, w.Patch(w.ctx, obj, client.RawPatch(types.MergePatchType, []byte(body))))
}

func TestNothingIsMadeBeforeWhatAnObjectDependsOnIsReady(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	on := []dependency.Dependency{{Kind: "Vpc", Name: "base"}}
	main := &vpcv1.Vpc{Spec: vpcv1.VpcSpec{CIDR: "10.0.0.0/16", DependsOn: on}}
	front := &vpcv1.Subnet{Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.0.1.0/24", DependsOn: on}}
	table := &vpcv1.RouteTable{Spec: vpcv1.RouteTableSpec{VPC: "main", DependsOn: on}}
	group := &vpcv1.SecurityGroup{Spec: vpcv1.SecurityGroupSpec{DependsOn: on}}
	all := []client.Object{main, front, table, group}
	for i, o := range all {
		o.SetNamespace(w.namespace)
		o.SetName([]string{"main", "front", "inspected", "web"}[i])
		require.NoError(t, w.Create(w.ctx, o))
		require.Equal(t, "spec.dependsOn has not been looked at yet", w.untilReason(o, dependency.ReasonUnknown))
		w.met(o, false)
		require.Equal(t, `spec.dependsOn[0] names Vpc "base", which is not ready yet`, w.untilReason(o, dependency.ReasonNotReady))
		require.Empty(t, o.GetFinalizers(), "it can go at once")
	}
	require.False(t, w.read(named(&netv1.VPC{}, string(main.UID))))
	for _, o := range all {
		w.met(o, true)
		w.untilReady(o)
	}
	// What has begun goes on.
	for _, o := range all {
		w.met(o, false)
		require.NoError(t, w.Patch(w.ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"dependsOn":[{"kind":"Vpc","name":"base"},{"kind":"Vpc","name":"more"}]}}`))))
		w.untilReady(o)
	}
}

// https://github.com/kubernetes-sigs/kro/issues/1316
func TestWhatIsGuardedStaysAsItIsOnTheNetwork(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	main, front, group := w.vpc("main", "10.0.0.0/16"), w.subnet("front", "main", "10.0.1.0/24"), w.group("web", vpcv1.SecurityGroupSpec{})
	w.untilReady(main, front, group)
	all := []client.Object{group, front, main}
	for _, o := range all {
		w.guard(o, true)
		require.NoError(t, w.Delete(w.ctx, o))
		require.Contains(t, w.untilReason(o, dependency.ReasonHasDependents), "goes when what depends on it is deleted")
	}
	require.True(t, w.read(named(&netv1.VPC{}, string(main.UID))))
	require.True(t, w.read(named(&netv1.Subnet{}, string(front.UID))))
	for _, o := range all {
		w.guard(o, false)
		w.untilGone(o)
	}
	w.untilNothingOf(all...)
}
