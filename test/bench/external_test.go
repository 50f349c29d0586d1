//go:build e2e

package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/cloud"
)

// askEvery is how long after one connection the next is tried. One that got no answer at once would only learn so after a second, when TCP sends
// again.
const askEvery = 5 * time.Millisecond

// outsideAnswers makes FloatingIPs, and leads one from target to target, and tells how long each takes until the machine's own shell has an
// answer of the target at the external address. The ExternalIP and the Containers are there.
func outsideAnswers(t *testing.T) {
	kube, _, err := bench.Connect()
	require.NoError(t, err)
	tenant := cloud.Tenant{Cloud: bench, Name: "external"}
	require.NoError(t, tenant.Create(t.Context()))
	require.NoError(t, tenant.AnswersWithin(t.Context(), 2*time.Minute))
	here, elsewhere := tenant.Servers()[0], tenant.Servers()[1]
	neighbour := &ctrv1.Container{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Name, Name: "neighbour"},
		Spec:       ctrv1.ContainerSpec{Subnet: "a", Node: "node-1", Image: cloud.Whoami},
	}
	require.NoError(t, kube.Create(t.Context(), neighbour))
	awaitRunning(t, kube, neighbour)
	eip := &vpcv1.ExternalIP{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Name, Name: "eip"}}
	require.NoError(t, kube.Create(t.Context(), eip))
	require.NoError(t, cloud.Eventually(t.Context(), time.Minute, "the ExternalIP is Ready", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(eip), eip); err != nil || eip.Status.Phase != status.Ready {
			return fmt.Errorf("phase %s: %w", eip.Status.Phase, err)
		}
		return nil
	}))

	count := rounds(t, "FLOATINGIPS", 150)
	leads := func(to string) *vpcv1.FloatingIP {
		return &vpcv1.FloatingIP{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Name, Name: "fip"},
			Spec:       vpcv1.FloatingIPSpec{ExternalIP: eip.Name, Target: vpcv1.FloatingIPTarget{Type: vpcv1.TargetContainers, Name: to}},
		}
	}
	var made []time.Duration
	for i := range count {
		to := []string{here, elsewhere}[i%2]
		fip := leads(to)
		started := time.Now()
		require.NoError(t, kube.Create(t.Context(), fip))
		made = append(made, firstAnswer(t, eip.Status.Address, to).Sub(started))
		require.NoError(t, kube.Delete(t.Context(), fip))
		require.NoError(t, cloud.EveryMoment(t.Context(), time.Minute, "the FloatingIP is gone", func(ctx context.Context) error {
			err := kube.Get(ctx, client.ObjectKeyFromObject(fip), fip)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it is there: %w", err)
		}))
	}
	result(t, fmt.Sprintf("%d FloatingIPs, from creation to the first answer", count), percentiles(made), "p99 at most 0.50 s")

	fip := leads(here)
	require.NoError(t, kube.Create(t.Context(), fip))
	firstAnswer(t, eip.Status.Address, here)
	moves := func(what string, targets ...string) {
		var moved []time.Duration
		for i := range count {
			to := targets[(i+1)%len(targets)]
			base := fip.DeepCopy()
			fip.Spec.Target.Name = to
			started := time.Now()
			require.NoError(t, kube.Patch(t.Context(), fip, client.MergeFrom(base)))
			moved = append(moved, firstAnswer(t, eip.Status.Address, to).Sub(started))
		}
		result(t, fmt.Sprintf("%d moves of a FloatingIP to a target on %s", count, what), percentiles(moved), "p99 at most 0.20 s")
	}
	moves("the same node", here, neighbour.Name)
	moves("another node", here, elsewhere)
	require.NoError(t, tenant.Delete(t.Context()))
}

// firstAnswer is when the server named first answers at an external address: a connection is tried every few milliseconds, and none waits for
// another.
func firstAnswer(t *testing.T, address, name string) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answered := make(chan time.Time, 1)
	failed := make(chan error, 1)
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	var last error
	for {
		select {
		case at := <-answered:
			return at
		case last = <-failed:
		case <-ctx.Done():
			t.Fatalf("%s does not answer at %s: %v", name, address, errors.Join(ctx.Err(), last))
		case <-tick.C:
			go func() {
				err := answers(ctx, address, name)
				if err == nil {
					select {
					case answered <- time.Now():
					default:
					}
					return
				}
				select {
				case failed <- err:
				default:
				}
			}()
		}
	}
}
