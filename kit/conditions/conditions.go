// Package conditions turns what a reconcile found out (a Result) into the conditions, the phase and the observed generation
// of an object's status. It is pure: it changes the status in memory and calls nobody.
//
// What comes in is one Result of a small vocabulary; what goes out is the vocabulary of kit/status. A controller may keep
// more specific conditions beside Ready; it sets those with Set.
package conditions

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

type outcome int

const (
	waiting outcome = iota
	progressing
	ready
	failed
)

// Result is what a reconcile found out about an object as a whole. Make one with Ready, Waiting, Progressing or Failed.
type Result struct {
	outcome outcome
	// Reason is the CamelCase reason of the Ready condition.
	Reason string
	// Message says what is so, for people: on a problem what is wrong, which field, what to do. It must be the same on every
	// reconcile of an unchanged object (no times, no counters), or the steady state would cost writes.
	Message string
}

// Ready says that the object does what its spec says.
func Ready(reason, message string) Result { return Result{ready, reason, message} }

// Waiting says that something else must come first, which the message names. Nothing is being done meanwhile.
func Waiting(reason, message string) Result { return Result{waiting, reason, message} }

// Progressing says that the object is being made, changed or deleted.
func Progressing(reason, message string) Result { return Result{progressing, reason, message} }

// Held says of an object that is being deleted that only the finalizers of others, which the message names, still hold it.
func Held(finalizers []string) Result {
	return Waiting("FinalizersRemain", "metadata.finalizers: what put "+strings.Join(finalizers, ", ")+
		" there has to take it away; everything else is deleted")
}

// Failed says that only a change by someone, which the message names, can help.
func Failed(reason, message string) Result { return Result{failed, reason, message} }

// IsReady tells whether the result is Ready.
func (r Result) IsReady() bool { return r.outcome == ready }

// Status points to the fields of an object's status that a Result decides.
type Status struct {
	// Phase is computed from the conditions.
	Phase *status.Phase
	// ObservedGeneration becomes the object's generation.
	ObservedGeneration *int64
	// Conditions get Ready, and Reconciling or Stalled while they apply.
	Conditions *[]metav1.Condition
}

// Apply writes the result into the status of obj: conditions, phase, observed generation.
func (s Status) Apply(obj metav1.Object, r Result) {
	generation := obj.GetGeneration()
	value := metav1.ConditionFalse
	if r.IsReady() {
		value = metav1.ConditionTrue
	}
	meta.SetStatusCondition(s.Conditions, condition(status.ConditionReady, value, r, generation))
	s.setWhile(r.outcome == progressing, condition(status.ConditionReconciling, metav1.ConditionTrue, r, generation))
	s.setWhile(r.outcome == failed, condition(status.ConditionStalled, metav1.ConditionTrue, r, generation))
	*s.ObservedGeneration = generation
	*s.Phase = Phase(*s.Conditions, obj.GetDeletionTimestamp() != nil)
}

func (s Status) setWhile(applies bool, c metav1.Condition) {
	if applies {
		meta.SetStatusCondition(s.Conditions, c)
		return
	}
	meta.RemoveStatusCondition(s.Conditions, c.Type)
}

func condition(kind string, value metav1.ConditionStatus, r Result, generation int64) metav1.Condition {
	return metav1.Condition{
		Type: kind, Status: value, Reason: r.Reason, Message: r.Message, ObservedGeneration: generation,
	}
}

// Set keeps a condition of a type of the controller's own beside Ready.
func Set(obj metav1.Object, conditions *[]metav1.Condition, kind string, value metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: message, ObservedGeneration: obj.GetGeneration(),
	})
}

// Phase sums up conditions for people: Deleting once the object was asked to go, then Ready, Error (Stalled), Provisioning
// (Reconciling), and Pending for everything else.
func Phase(conditions []metav1.Condition, deleting bool) status.Phase {
	switch {
	case deleting:
		return status.Deleting
	case meta.IsStatusConditionTrue(conditions, status.ConditionReady):
		return status.Ready
	case meta.IsStatusConditionTrue(conditions, status.ConditionStalled):
		return status.Error
	case meta.IsStatusConditionTrue(conditions, status.ConditionReconciling):
		return status.Provisioning
	}
	return status.Pending
}

// IsReady tells whether the conditions say Ready for the given generation of the object: a condition about an older
// generation says nothing about this one.
func IsReady(conditions []metav1.Condition, generation int64) bool {
	c := meta.FindStatusCondition(conditions, status.ConditionReady)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == generation
}

// Message is the message of the Ready condition, or "" when there is none.
func Message(conditions []metav1.Condition) string {
	if c := meta.FindStatusCondition(conditions, status.ConditionReady); c != nil {
		return c.Message
	}
	return ""
}
