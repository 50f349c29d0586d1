package controller

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

// The test is the Dependency Controller. https://github.com/kubernetes-sigs/kro/issues/1316
func TestAContainerIsMadeWhenWhatItDependsOnIsReadyAndStaysWhileItIsGuarded(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	c := &ctrv1.Container{Spec: ctrv1.ContainerSpec{
		Subnet: "web", Image: "registry.mni.internal/mni/whoami:latest", DependsOn: []dependency.Dependency{{Kind: "Container", Name: "db"}},
	}}
	c.Namespace, c.Name = w.namespace, "web-0"
	require.NoError(t, w.Create(w.ctx, c))
	w.untilReason(c, dependency.ReasonUnknown)
	tell := func(met bool) {
		t.Helper()
		body := fmt.Sprintf(`{"status":{"dependencies":{"observedGeneration":%d,"met":%t,"reason":"DependencyNotFound","message":"there is no db"}}}`, c.Generation, met)
		require.NoError(t, w.Status().Patch(w.ctx, c, client.RawPatch(types.MergePatchType, []byte(body))))
	}
	tell(false)
	require.Equal(t, "there is no db", w.untilReason(c, dependency.ReasonNotFound))
	require.Empty(t, c.Finalizers)
	require.False(t, w.read(w.podOf(c)))
	require.False(t, w.read(w.interfaceOf(c)))
	tell(true)
	pod := w.bind(c, "node-1", "")
	w.untilPhase(c, status.Ready)

	finalizers := func(names ...string) {
		t.Helper()
		body := fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, names[0])
		if len(names) > 1 {
			body = fmt.Sprintf(`{"metadata":{"finalizers":[%q,%q]}}`, names[0], names[1])
		}
		require.NoError(t, w.Patch(w.ctx, c, client.RawPatch(types.MergePatchType, []byte(body))))
	}
	address := c.Status.Address
	finalizers(ctrv1.Finalizer, dependency.Guard)
	require.NoError(t, w.Delete(w.ctx, c))
	require.Equal(t, "the Container goes when what depends on it is deleted", w.untilReason(c, dependency.ReasonHasDependents))
	require.Equal(t, address, c.Status.Address, "it is shown as it is")
	require.True(t, w.read(pod))
	require.Nil(t, pod.DeletionTimestamp, "and runs")
	finalizers(ctrv1.Finalizer)
	w.end(pod)
	w.untilGone(c)
}
