package dependency

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	kit "github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(apiserver.Main(m))
}

// patience bounds each wait for a condition.
const patience = 2 * time.Minute

// tenant is a test's namespace, and a client with every right and without a cache. The test is the services.
type tenant struct {
	t *testing.T
	client.Client
	ctx       context.Context
	namespace string
}

func newTenant(t *testing.T) *tenant {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	restConfig := apiserver.Shared(t)
	restConfig.QPS = -1
	c, err := client.New(restConfig, client.Options{Scheme: scheme})
	require.NoError(t, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-", Labels: map[string]string{"auth.mnicloud.jp/tenant-uid": "any"}}}
	require.NoError(t, c.Create(t.Context(), ns))
	return &tenant{t: t, Client: c, ctx: context.Background(), namespace: ns.Name}
}

// run runs the controller until stop is called, or the test ends.
func run(t *testing.T, webhooks webhook.Server) (stop func()) {
	t.Helper()
	restConfig := apiserver.Shared(t)
	restConfig.QPS = -1
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	require.NoError(t, err)
	if webhooks != nil {
		require.NoError(t, mgr.Add(webhooks))
	}
	require.NoError(t, SetupWithManager(mgr, Config{Webhooks: webhooks}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(t, <-done)
		}
	}
	t.Cleanup(stop)
	return stop
}

func (w *tenant) object(kind, name string, spec map[string]any, on ...kit.Dependency) *unstructured.Unstructured {
	group := "vpc.mnicloud.jp"
	switch kind {
	case "Container":
		group = "ctr.mnicloud.jp"
	case "Thing":
		group = "lab.mnicloud.jp"
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: kind})
	u.SetNamespace(w.namespace)
	u.SetName(name)
	if len(on) > 0 {
		var list []any
		for _, d := range on {
			list = append(list, map[string]any{"kind": d.Kind, "name": d.Name})
		}
		spec["dependsOn"] = list
	}
	return u
}

func (w *tenant) create(u *unstructured.Unstructured) *unstructured.Unstructured {
	w.t.Helper()
	require.NoError(w.t, w.Create(w.ctx, u))
	return u
}

func (w *tenant) vpc(name string, on ...kit.Dependency) *unstructured.Unstructured {
	w.t.Helper()
	return w.create(w.object("Vpc", name, map[string]any{"cidr": "10.0.0.0/16"}, on...))
}

func (w *tenant) subnet(name, vpc string, on ...kit.Dependency) *unstructured.Unstructured {
	w.t.Helper()
	return w.create(w.object("Subnet", name, map[string]any{"vpc": vpc, "cidr": "10.0.1.0/24"}, on...))
}

// setReady does the services' part.
func (w *tenant) setReady(u *unstructured.Unstructured, ready bool, message string) {
	w.t.Helper()
	status := "False"
	if ready {
		status = "True"
	}
	require.True(w.t, w.read(u))
	before := u.DeepCopy()
	require.NoError(w.t, unstructured.SetNestedSlice(u.Object, []any{map[string]any{
		"type": "Ready", "status": status, "reason": "Test", "message": message, "observedGeneration": u.GetGeneration(),
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}, "status", "conditions"))
	require.NoError(w.t, w.Status().Patch(w.ctx, u, client.MergeFrom(before)))
}

// read reads the object anew; it tells whether the object exists.
func (w *tenant) read(u *unstructured.Unstructured) bool {
	w.t.Helper()
	fresh := &unstructured.Unstructured{}
	fresh.SetGroupVersionKind(u.GroupVersionKind())
	err := w.Get(w.ctx, client.ObjectKeyFromObject(u), fresh)
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(w.t, err)
	fresh.DeepCopyInto(u)
	return true
}

func (w *tenant) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, patience, 5*time.Millisecond, what)
}

// dependencies are the object's status.dependencies.
func (w *tenant) dependencies(u *unstructured.Unstructured) kit.Status {
	w.t.Helper()
	var out kit.Status
	if content, found, _ := unstructured.NestedMap(u.Object, "status", "dependencies"); found {
		require.NoError(w.t, runtime.DefaultUnstructuredConverter.FromUnstructured(content, &out))
	}
	return out
}

// untilTold waits for the object to be told the reason, and returns the message.
func (w *tenant) untilTold(u *unstructured.Unstructured, reason string) string {
	w.t.Helper()
	w.eventually(u.GetName()+" is told "+reason, func() bool { return w.read(u) && w.dependencies(u).Reason == reason })
	return w.dependencies(u).Message
}

func (w *tenant) untilMet(u *unstructured.Unstructured) {
	w.t.Helper()
	w.eventually(u.GetName()+" may begin", func() bool {
		return w.read(u) && w.dependencies(u).Met && w.dependencies(u).ObservedGeneration == u.GetGeneration()
	})
}

func (w *tenant) untilGone(u *unstructured.Unstructured) {
	w.t.Helper()
	w.eventually(u.GetName()+" is gone", func() bool { return !w.read(u) })
}

func guarded(u *unstructured.Unstructured) bool {
	for _, f := range u.GetFinalizers() {
		if f == kit.Guard {
			return true
		}
	}
	return false
}

func (w *tenant) untilGuarded(u *unstructured.Unstructured, want bool) {
	w.t.Helper()
	w.eventually(u.GetName()+" is guarded, or not any more", func() bool { return w.read(u) && guarded(u) == want })
}

func (w *tenant) dependents(u *unstructured.Unstructured) []string {
	out, _, _ := unstructured.NestedStringSlice(u.Object, "status", "dependents")
	return out
}
