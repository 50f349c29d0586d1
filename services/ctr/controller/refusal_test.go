package controller

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestARefusedPodIsToldInTheContainersTerms(t *testing.T) {
	pods, kind := schema.GroupResource{Resource: "pods"}, schema.GroupKind{Kind: "Pod"}
	terminating := apierrors.NewForbidden(pods, "web-0", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, tc := range []struct {
		name   string
		err    error
		reason string
		says   string
		again  bool
	}{
		{"a namespace that goes", terminating, "NamespaceDeleting", "the namespace is being deleted", false},
		{"a namespace that is new", apierrors.NewForbidden(pods, "web-0", errors.New(`error looking up service account a/default: serviceaccount "default" not found`)), "Creating", "being set up", true},
		{"a quota", apierrors.NewForbidden(pods, "web-0", errors.New("exceeded quota: pods")), "PodRefused", "exceeded quota: pods", true},
		{"a field", apierrors.NewInvalid(kind, "web-0", field.ErrorList{field.Invalid(field.NewPath("spec", "containers").Index(0).Child("ports").Index(0).Child("name"), "x", "no good")}), "SpecRefused", "correct the field: spec.ports[0].name: ", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, ok := refusedPod(tc.err)
			require.True(t, ok)
			require.Equal(t, tc.reason, p.result.Reason)
			require.Contains(t, p.result.Message, tc.says)
			require.Equal(t, tc.again, p.again > 0)
		})
	}
	for _, err := range []error{nil, errors.New("no route to host"), apierrors.NewTooManyRequests("wait", 1)} {
		_, ok := refusedPod(err)
		require.False(t, ok)
	}
}
