package controller

import (
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

// When a Pod that was refused is tried again: nothing tells when a quota or a policy would let it through.
const (
	retryRefused = 15 * time.Second
	retrySetup   = 250 * time.Millisecond
)

// refusedPod tells what to do about a Pod that the API server refuses; ok is false for other errors and for none.
func refusedPod(err error) (p plan, ok bool) {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return plan{result: namespaceDeleting}, true
	case apierrors.IsInvalid(err):
		return plan{result: conditions.Failed("SpecRefused", "the Pod that the spec asks for is not valid, correct the field: "+fields(err))}, true
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "error looking up service account"):
		// A namespace that was just made has none yet; it comes within moments.
		return plan{result: conditions.Progressing("Creating", "the namespace is being set up"), again: retrySetup}, true
	case apierrors.IsForbidden(err):
		return plan{result: conditions.Waiting("PodRefused", "the Pod is not allowed: "+err.Error()), again: retryRefused}, true
	}
	return plan{}, false
}

// fields says what is wrong with a Pod in terms of the Container's fields.
func fields(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return err.Error()
	}
	var problems []string
	for _, cause := range status.Status().Details.Causes {
		field := strings.Replace(cause.Field, "spec.containers[0].", "spec.", 1)
		problems = append(problems, field+": "+cause.Message)
	}
	if len(problems) == 0 {
		return err.Error()
	}
	return strings.Join(problems, "; ")
}

// event tells people that a Container became Ready, waits for something, or needs help.
func (r *reconciler) event(before, after *ctrv1.Container, result conditions.Result) {
	if after.Status.Phase == status.Provisioning || after.Status.Phase == status.Deleting {
		return
	}
	was := meta.FindStatusCondition(before.Status.Conditions, status.ConditionReady)
	if was != nil && was.Reason == result.Reason {
		return
	}
	kind := corev1.EventTypeNormal
	if after.Status.Phase == status.Error {
		kind = corev1.EventTypeWarning
	}
	r.events.Eventf(after, nil, kind, result.Reason, "Reconcile", "%s", result.Message)
}
