package manifests_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/distro/manifests"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

// BenchmarkWritesUnderTheRules times the same writes of what is not the cloud's at two API servers in turn: one has all admission policies and
// webhooks that are installed, of which some must be for all groups, the other has none. Before that both have none: what differs then is the
// measurement's own.
func BenchmarkWritesUnderTheRules(b *testing.B) {
	bare, ruled := newWriter(b), newWriter(b)
	for _, rules := range []string{"none", "installed"} {
		if rules == "installed" {
			ruled.install(b)
		}
		for _, namespace := range []string{"ordinary", tenantsNamespace} {
			for _, kind := range []string{"Pod", "ConfigMap"} {
				b.Run(rules+"/"+kind+"/"+namespace, func(b *testing.B) { inTurn(b, bare, ruled, namespace, kind) })
			}
		}
	}
}

// inTurn reports, for creations and changes, how long they take with the rules, for each that they take without. Each number of a pair stands for itself
// and the other only at the same moment, so the medians count.
func inTurn(b *testing.B, bare, ruled *writer, namespace, kind string) {
	took := map[string][2][]time.Duration{}
	before := [2]float64{bare.metric(b, cpuSeconds), ruled.metric(b, cpuSeconds)}
	judged, asked := ruled.metric(b, conditionSeconds), ruled.metric(b, webhookCalls)
	for i := range b.N {
		pair := [2]*writer{bare, ruled}
		for _, which := range []int{i % 2, 1 - i%2} {
			created, changed := pair[which].write(b, namespace, kind, fmt.Sprintf("w-%d-%d", b.N, i))
			for what, d := range map[string]time.Duration{"create": created, "update": changed} {
				both := took[what]
				both[which] = append(both[which], d)
				took[what] = both
			}
		}
	}
	for what, both := range took {
		ratios := make([]float64, b.N)
		for i := range ratios {
			ratios[i] = float64(both[1][i]) / float64(both[0][i])
		}
		slices.Sort(ratios)
		b.ReportMetric(ratios[len(ratios)/2], what+"-ratio")
		for which, name := range []string{"bare", "ruled"} {
			slices.Sort(both[which])
			b.ReportMetric(float64(both[which][b.N/2].Microseconds())/1000, what+"-"+name+"-p50-ms")
			b.ReportMetric(float64(both[which][b.N*99/100].Microseconds())/1000, what+"-"+name+"-p99-ms")
		}
	}
	const writes, micro = 3, 1e6 // created, changed, deleted
	n := float64(b.N)
	b.ReportMetric(micro*(bare.metric(b, cpuSeconds)-before[0])/n/writes, "cpu-bare-µs/write")
	b.ReportMetric(micro*(ruled.metric(b, cpuSeconds)-before[1])/n/writes, "cpu-ruled-µs/write")
	b.ReportMetric(micro*(ruled.metric(b, conditionSeconds)-judged)/n/(writes-1), "conditions-µs/write")
	b.ReportMetric((ruled.metric(b, webhookCalls)-asked)/n, "webhook-calls")
}

// tenantsNamespace has the labels of one.
const tenantsNamespace = "tenants"

// Metrics of the API server, each with all its labels in one.
const (
	cpuSeconds       = "process_cpu_seconds_total"
	conditionSeconds = "apiserver_admission_match_condition_evaluation_seconds_sum"
	webhookCalls     = "apiserver_admission_webhook_request_total"
)

// writer writes to an API server of its own.
type writer struct {
	client.Client
	web *http.Client
	url string
}

func newWriter(b *testing.B) *writer {
	b.Helper()
	config := apiserver.Start(b)
	config.QPS = -1
	c, err := client.New(config, client.Options{})
	require.NoError(b, err)
	web, err := rest.HTTPClientFor(config)
	require.NoError(b, err)
	for name, labels := range map[string]map[string]string{
		"ordinary": {}, tenantsNamespace: {authv1.LabelTenantUID: "0", "pod-security.kubernetes.io/enforce": "baseline"},
	} {
		require.NoError(b, c.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
	}
	return &writer{c, web, strings.TrimSuffix(config.Host, "/")}
}

// install installs the admission rules that are installed in a cloud, and waits until they hold.
func (w *writer) install(b *testing.B) {
	b.Helper()
	objects, err := manifests.Objects(values)
	require.NoError(b, err)
	for _, o := range objects {
		if o.GroupVersionKind().Group == "admissionregistration.k8s.io" {
			require.NoError(b, w.Create(b.Context(), o))
		}
	}
	vpc := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "vpc.mnicloud.jp/v1alpha1", "kind": "Vpc", "metadata": map[string]any{"name": "probe", "namespace": "ordinary"},
		"spec": map[string]any{"cidr": "10.0.0.0/16", "dependsOn": []any{map[string]any{"kind": "Vpc", "name": "other"}}},
	}}
	platform := pod("ordinary", "probe")
	platform.SetLabels(map[string]string{"net.mnicloud.jp/platform": "true"})
	for says, probe := range map[string]client.Object{"failed calling webhook": vpc, "may have no Pods of the platform": platform} {
		require.Eventually(b, func() bool {
			err := w.Create(b.Context(), probe.DeepCopyObject().(client.Object), client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), says)
		}, time.Minute, 100*time.Millisecond, says)
	}
}

// write makes, changes and deletes an object, and says how long the first two took.
func (w *writer) write(b *testing.B, namespace, kind, name string) (created, changed time.Duration) {
	b.Helper()
	var o client.Object = pod(namespace, name)
	if kind == "ConfigMap" {
		o = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"a": strings.Repeat("x", 1000)}}
	}
	began := time.Now()
	require.NoError(b, w.Create(b.Context(), o))
	created = time.Since(began)
	began = time.Now()
	require.NoError(b, w.Patch(b.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
	changed = time.Since(began)
	require.NoError(b, w.Delete(b.Context(), o, client.GracePeriodSeconds(0)))
	return created, changed
}

// pod is an ordinary one.
func pod(namespace, name string) *corev1.Pod {
	container := corev1.Container{
		Name: "web", Image: "registry.example/web:1", Command: []string{"/web", "--listen", ":8080"},
		Env:   []corev1.EnvVar{{Name: "NAME", Value: name}, {Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{container}},
	}
}

// metric is the sum of one of the API server's over all labels.
func (w *writer) metric(b *testing.B, name string) float64 {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, w.url+"/metrics", http.NoBody)
	require.NoError(b, err)
	response, err := w.web.Do(r)
	require.NoError(b, err)
	defer func() {
		_, err := io.Copy(io.Discard, response.Body)
		require.NoError(b, err)
		require.NoError(b, response.Body.Close())
	}()
	require.Equal(b, http.StatusOK, response.StatusCode)
	sum := 0.0
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text := lines.Text()
		if !strings.HasPrefix(text, name+" ") && !strings.HasPrefix(text, name+"{") {
			continue
		}
		value := text[strings.LastIndex(text, " ")+1:]
		n, err := strconv.ParseFloat(value, 64)
		require.NoError(b, err)
		sum += n
	}
	require.NoError(b, lines.Err())
	return sum
}
