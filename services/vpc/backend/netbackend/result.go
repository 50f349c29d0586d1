package netbackend

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
)

// resultOf tells a tenant how the network's object is. names replaces the network's names by the tenant's.
func resultOf(what string, live metav1.Object, conds []metav1.Condition, names *strings.Replacer) conditions.Result {
	ready := readyOf(conds)
	switch {
	case live.GetResourceVersion() == "" || ready == nil || ready.ObservedGeneration != live.GetGeneration():
		return conditions.Progressing("Provisioning", "the network is making "+what)
	case ready.Status == metav1.ConditionTrue:
		return conditions.Ready("Ready", what+" is ready")
	case meta.IsStatusConditionTrue(conds, status.ConditionStalled):
		return conditions.Failed(ready.Reason, names.Replace(ready.Message))
	}
	return conditions.Progressing("Provisioning", fmt.Sprintf("the network is making %s: %s", what, names.Replace(ready.Message)))
}

func readyOf(conds []metav1.Condition) *metav1.Condition {
	return meta.FindStatusCondition(conds, status.ConditionReady)
}

// refused tells a tenant that the network does not take the object as it is; other errors remain errors, to be tried again.
func refused(err error) (conditions.Result, error) {
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return conditions.Failed("RefusedByNetwork", "the network refuses the spec, delete the object and make it with another one: "+err.Error()), nil
	}
	return conditions.Result{}, fmt.Errorf("write to the network: %w", err)
}

// remaking says that what was made is being deleted by somebody else; it is made anew when it is gone.
func remaking(kind, name string) conditions.Result {
	return conditions.Progressing("Remaking", fmt.Sprintf("what the network made for %s %q is being deleted; it is made anew then", kind, name))
}
