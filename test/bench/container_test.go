//go:build e2e

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/cloud"
)

// rounds is how often something is done, one after the other: as the environment variable says, or as usual.
func rounds(t *testing.T, variable string, usual int) int {
	given := os.Getenv(variable)
	if given == "" {
		return usual
	}
	n, err := strconv.Atoi(given)
	require.NoError(t, err, variable)
	return n
}

// oneAfterTheOther makes Containers in a tenant that is there, and tells how long each takes from its creation until it is Running,
// and until it answers HTTP: at the address that Kubernetes sees, which is there when the tenant's is.
func oneAfterTheOther(t *testing.T) {
	kube, _, err := bench.Connect()
	require.NoError(t, err)
	tenant := cloud.Tenant{Cloud: bench, Name: "latency"}
	require.NoError(t, tenant.Create(t.Context()))
	require.NoError(t, tenant.AnswersWithin(t.Context(), 2*time.Minute))
	var running, answered []time.Duration
	for i := range rounds(t, "CONTAINERS", 40) {
		c := &ctrv1.Container{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Name, Name: fmt.Sprint("c-", i)},
			Spec:       ctrv1.ContainerSpec{Subnet: "a", Image: cloud.Whoami},
		}
		started := time.Now()
		require.NoError(t, kube.Create(t.Context(), c))
		address := awaitRunning(t, kube, c)
		running = append(running, time.Since(started))
		require.NoError(t, cloud.EveryMoment(t.Context(), time.Minute, c.Name+" answers", func(ctx context.Context) error {
			return answers(ctx, address, c.Name)
		}))
		answered = append(answered, time.Since(started))
		require.NoError(t, kube.Delete(t.Context(), c))
	}
	result(t, fmt.Sprintf("%d Containers, one after the other, to Running", len(running)), percentiles(running), "seconds")
	result(t, "and to the first answer", percentiles(answered), "seconds")
	parts, err := bench.Parts(t.Context())
	require.NoError(t, err)
	for _, p := range parts {
		if strings.HasSuffix(p.Name, "/mni-netd") || p.Name == "mni-cloud" {
			result(t, "memory of "+p.Name, fmt.Sprintf("%d MiB", p.MemoryBytes>>20), "-")
		}
	}
	require.NoError(t, tenant.Delete(t.Context()))
}

// awaitRunning waits until the Container is Ready and returns the address that Kubernetes sees.
func awaitRunning(t *testing.T, kube client.WithWatch, c *ctrv1.Container) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	changes, err := kube.Watch(ctx, &ctrv1.ContainerList{}, client.InNamespace(c.Namespace))
	require.NoError(t, err)
	defer changes.Stop()
	for change := range changes.ResultChan() {
		now, ok := change.Object.(*ctrv1.Container)
		if !ok || now.Name != c.Name || now.Status.Phase != status.Ready {
			continue
		}
		var pod corev1.Pod
		require.NoError(t, kube.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: now.Status.Pod}, &pod))
		return pod.Status.PodIP
	}
	t.Fatalf("Container %s is not Ready: %v", c.Name, ctx.Err())
	return ""
}

// once asks over a connection of its own each time: one that was kept would be with whoever had the address before.
var once = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// answers returns nil when the server at the address is the one named.
func answers(ctx context.Context, address, name string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(address, "8080")+"/", nil)
	if err != nil {
		return err
	}
	response, err := once.Do(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if !strings.Contains(string(body), "name: "+name+"\n") {
		return fmt.Errorf("%s: another answered: %s", address, body)
	}
	return nil
}

func percentiles(of []time.Duration) string {
	slices.Sort(of)
	at := func(percent int) float64 { return of[(len(of)-1)*percent/100].Seconds() }
	return fmt.Sprintf("p50 %.2f, p99 %.2f s", at(50), at(99))
}
