//go:build e2e

package bench

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/cloud"
)

// startsAfter makes Vpcs, each with another that depends on it and waits already, and tells how long after the first one is seen Ready the
// second one is seen to begin.
func startsAfter(t *testing.T) {
	const pairs = 300
	kube, _, err := bench.Connect()
	require.NoError(t, err)
	tenant := cloud.Tenant{Cloud: bench, Name: "dependencies"}
	require.NoError(t, tenant.Create(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	changes, err := kube.Watch(ctx, &vpcv1.VpcList{}, client.InNamespace(tenant.Name))
	require.NoError(t, err)
	defer changes.Stop()
	var took []time.Duration
	for i := range pairs {
		base, dependent := fmt.Sprint("base-", i), fmt.Sprint("dependent-", i)
		second := vpc(tenant.Name, dependent)
		second.Spec.DependsOn = []dependency.Dependency{{Kind: "Vpc", Name: base}}
		require.NoError(t, kube.Create(ctx, second))
		await(ctx, t, changes, dependent, func(v *vpcv1.Vpc) bool { return v.Status.Phase == status.Pending })
		first := vpc(tenant.Name, base)
		require.NoError(t, kube.Create(ctx, first))
		ready := await(ctx, t, changes, base, func(v *vpcv1.Vpc) bool { return v.Status.Phase == status.Ready })
		begun := await(ctx, t, changes, dependent, func(v *vpcv1.Vpc) bool { return slices.Contains(v.Finalizers, vpcv1.Finalizer) })
		took = append(took, begun.Sub(ready))
		require.NoError(t, kube.Delete(ctx, second))
		require.NoError(t, kube.Delete(ctx, first))
	}
	result(t, fmt.Sprintf("%d dependents begin after what they wait for is Ready", pairs), percentiles(took), "p99 at most 0.20 s")
	require.NoError(t, tenant.Delete(t.Context()))
}

func vpc(namespace, name string) *vpcv1.Vpc {
	return &vpcv1.Vpc{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: vpcv1.VpcSpec{CIDR: "10.0.0.0/16"}}
}

// await tells when a Vpc was first seen to be so, in the events that are yet to be read.
func await(ctx context.Context, t *testing.T, changes watch.Interface, name string, so func(*vpcv1.Vpc) bool) time.Time {
	t.Helper()
	for change := range changes.ResultChan() {
		if v, ok := change.Object.(*vpcv1.Vpc); ok && v.Name == name && so(v) {
			return time.Now()
		}
	}
	t.Fatalf("Vpc %s is not so: %v", name, ctx.Err())
	return time.Time{}
}
