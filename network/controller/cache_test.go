package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func TestTheCacheKeepsOfAPodWhatControllersRead(t *testing.T) {
	pod := newPod("team", "web", corev1.LastAppliedConfigAnnotation, "{}", netv1.AnnotationSubnet, "front")
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	pod.Spec.NodeName, pod.Spec.HostNetwork = "node-1", true
	pod.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SECRET", Value: "x"}}
	pod.Status.PodIP = "198.18.0.7"
	got, err := stripPod(pod)
	require.NoError(t, err)
	want := newPod("team", "web", netv1.AnnotationSubnet, "front")
	want.Spec.NodeName, want.Spec.HostNetwork, want.Status.PodIP = "node-1", true, "198.18.0.7"
	require.Equal(t, want, got)
	_, err = stripPod("x")
	require.Error(t, err)
}
