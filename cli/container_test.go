package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"

	ctr "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

// finder is a podFinder in namespace "a" among the given Containers and Pods.
func finder(t *testing.T, objects ...runtime.Object) *podFinder {
	t.Helper()
	scheme := newScheme()
	var containers, pods []runtime.Object
	for _, o := range objects {
		if _, ok := o.(*ctr.Container); ok {
			containers = append(containers, o)
			continue
		}
		pods = append(pods, o)
	}
	return &podFinder{dynamic: dynamicfake.NewSimpleDynamicClient(scheme, containers...), kubernetes: kubernetesfake.NewClientset(pods...), namespace: "a"}
}

func pod(name, container string, age time.Duration) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: name, Labels: map[string]string{labelContainer: container},
		CreationTimestamp: metav1.NewTime(time.Unix(1000, 0).Add(-age)),
	}}
}

func TestAContainersPodIsTheOneItsStatusNames(t *testing.T) {
	web := newContainer("a", "web")
	web.Status.Pod = "web-2"
	f := finder(t, web, pod("web-1", "web", 0), pod("web-2", "web", time.Hour))
	for _, name := range []string{"web", "container/web", "ctr/web", "containers.ctr.mnicloud.jp/web"} {
		found, err := f.find(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, "web-2", found.Name, name)
	}
}

func TestAContainersPodIsTheNewestLabelledOneWhenItsStatusIsBehind(t *testing.T) {
	web := newContainer("a", "web")
	web.Status.Pod = "lost"
	f := finder(t, web, pod("web-1", "web", time.Hour), pod("web-2", "web", 0), pod("db-1", "db", 0))
	found, err := f.find(t.Context(), "web")
	require.NoError(t, err)
	require.Equal(t, "web-2", found.Name)
}

func TestAContainerWithoutAPodSaysWhy(t *testing.T) {
	web := newContainer("a", "web")
	web.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "SubnetNotReady", Message: "waits for Subnet front"}}
	_, err := finder(t, web, newContainer("a", "new")).find(t.Context(), "web")
	require.EqualError(t, err, "container/web does not run yet: waits for Subnet front (SubnetNotReady)")
	_, err = finder(t, newContainer("a", "new")).find(t.Context(), "new")
	require.EqualError(t, err, "container/new does not run yet")
}

func TestOtherNamesOfPods(t *testing.T) {
	f := finder(t, pod("coredns", "", 0))
	found, err := f.find(t.Context(), "pod/coredns")
	require.NoError(t, err)
	require.Equal(t, "coredns", found.Name)
	_, err = f.find(t.Context(), "coredns")
	require.True(t, apierrors.IsNotFound(err), err)
	var usage *usageError
	_, err = f.find(t.Context(), "service/web")
	require.ErrorAs(t, err, &usage)
}
