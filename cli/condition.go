package cli

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mnicloud/mnicloud/kit/status"
)

// judgement looks at an object, nil when it is not there, and tells whether what is waited for has come, and if not why.
type judgement func(o *unstructured.Unstructured) (done bool, why string)

// conditions are those of the object's status.
func conditions(o *unstructured.Unstructured) []metav1.Condition {
	raw, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	var conditions []metav1.Condition
	for _, r := range raw {
		content, ok := r.(map[string]any)
		if !ok {
			continue
		}
		var condition metav1.Condition
		if runtime.DefaultUnstructuredConverter.FromUnstructured(content, &condition) == nil {
			conditions = append(conditions, condition)
		}
	}
	return conditions
}

func findCondition(conditions []metav1.Condition, kind string) *metav1.Condition {
	for i := range conditions {
		if strings.EqualFold(conditions[i].Type, kind) {
			return &conditions[i]
		}
	}
	return nil
}

// why says in words why a condition is as it is.
func why(c *metav1.Condition) string {
	switch {
	case c.Message == "":
		return c.Reason
	case c.Reason == "":
		return c.Message
	}
	return c.Message + " (" + c.Reason + ")"
}

// conditionIs waits until a condition has a status and speaks of the object as it is now.
func conditionIs(kind, wanted string) judgement {
	return func(o *unstructured.Unstructured) (bool, string) {
		if o == nil {
			return false, "it does not exist"
		}
		c := findCondition(conditions(o), kind)
		switch {
		case c == nil:
			return false, fmt.Sprintf("it has no condition %s yet: nothing has taken it up", kind)
		case c.ObservedGeneration != 0 && c.ObservedGeneration < o.GetGeneration():
			return false, "its last change has not been taken up yet"
		case strings.EqualFold(string(c.Status), wanted):
			return true, ""
		}
		return false, why(c)
	}
}

// isReady waits until the object is Ready. Objects of Kubernetes' own kinds that have no such condition are ready when they
// are there (and Available, when they have that condition).
func isReady(o *unstructured.Unstructured) (bool, string) {
	if o == nil {
		return false, "it does not exist"
	}
	gvk := o.GroupVersionKind()
	ready := conditionIs(status.ConditionReady, string(metav1.ConditionTrue))
	if ofCloud(gvk.Group) || gvk.Group == "" && (gvk.Kind == "Pod" || gvk.Kind == "Node") {
		return ready(o)
	}
	for _, kind := range []string{status.ConditionReady, "Available"} {
		if findCondition(conditions(o), kind) != nil {
			return conditionIs(kind, string(metav1.ConditionTrue))(o)
		}
	}
	return true, ""
}

// isGone waits until the object that had the UID is no more.
func isGone(uid types.UID) judgement {
	return func(o *unstructured.Unstructured) (bool, string) {
		if o == nil || (uid != "" && o.GetUID() != uid) {
			return true, ""
		}
		if o.GetDeletionTimestamp() == nil {
			return false, "it has not been asked to go"
		}
		if c := findCondition(conditions(o), status.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
			return false, why(c)
		}
		if finalizers := o.GetFinalizers(); len(finalizers) > 0 {
			return false, "cleaning up (" + strings.Join(finalizers, ", ") + ")"
		}
		return false, "it is shutting down"
	}
}
