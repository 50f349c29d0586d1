// Package dependency is how a resource of a tenant says what must come before it, waits for that, and stays while something depends
// on it. What comes in is what an object declares and what the Dependency Controller (platform/dependency) wrote into its status; what
// goes out is a Result for the object's Ready condition, or nil when there is nothing to wait for. It is pure and calls nobody.
//
// A service's controller asks Waits before its first side effect, Held before it takes anything away, and tells of what its own fields
// name by a Reference.
package dependency

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/conditions"
)

// Guard is the finalizer by which the Dependency Controller keeps what something depends on. It is not put on before something does,
// and taken away when nothing does any more.
const Guard = "dependency.mnicloud.jp/guard"

// Reasons of the Ready condition of what waits.
const (
	// ReasonUnknown: spec.dependsOn was not looked at yet.
	ReasonUnknown = "DependenciesUnknown"
	// ReasonNotFound, ReasonNotReady, ReasonDeleting: how the first dependency is that is waited for.
	ReasonNotFound = "DependencyNotFound"
	ReasonNotReady = "DependencyNotReady"
	ReasonDeleting = "DependencyDeleting"
	// ReasonCycle: the object depends on itself.
	ReasonCycle = "DependencyCycle"
	// ReasonHasDependents: an object that is to go is still depended on.
	ReasonHasDependents = "HasDependents"
)

// Dependency is a resource of the same tenant that must be Ready before another is made, and that stays as long as that one is there.
type Dependency struct {
	// Kind of the resource, such as Subnet; with its API group, as in Subnet.vpc.mnicloud.jp, where several groups have the kind.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Z][A-Za-z0-9]*([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$')",message="kind must be the name of a kind, such as Subnet or Subnet.vpc.mnicloud.jp"
	Kind string `json:"kind"`
	// Name of the resource, of the same tenant.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="name must be the name of a resource of the same tenant, such as main"
	Name string `json:"name"`
}

// Status is what the Dependency Controller says of an object that depends on others.
type Status struct {
	// ObservedGeneration is the generation that this speaks of.
	ObservedGeneration int64 `json:"observedGeneration"`
	// Met is true when all that the object depends on is Ready and stays as long as the object.
	Met bool `json:"met"`
	// Reason is why not, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says what is waited for.
	// +optional
	Message string `json:"message,omitempty"`
}

// Declared is what an object says, and is told, about what it depends on.
type Declared struct {
	// On is its spec.dependsOn.
	On []Dependency
	// Seen is its status.dependencies.
	Seen *Status
	// Dependents are its status.dependents.
	Dependents []string
}

// Object is a resource that can depend on others.
type Object interface {
	metav1.Object
	// Dependencies are what it says and is told.
	Dependencies() Declared
}

// Waits says what an object still waits for of what spec.dependsOn names; nil when it may begin. An object that has the finalizer of its
// controller has begun: what was made stays, however its dependencies are later.
func Waits(obj Object, finalizer string) *conditions.Result {
	d := obj.Dependencies()
	if len(d.On) == 0 || slices.Contains(obj.GetFinalizers(), finalizer) {
		return nil
	}
	var no conditions.Result
	switch {
	case d.Seen == nil || d.Seen.ObservedGeneration != obj.GetGeneration():
		no = conditions.Waiting(ReasonUnknown, "spec.dependsOn has not been looked at yet")
	case d.Seen.Met:
		return nil
	case d.Seen.Reason == ReasonCycle:
		no = conditions.Failed(d.Seen.Reason, d.Seen.Message)
	default:
		no = conditions.Waiting(d.Seen.Reason, d.Seen.Message)
	}
	return &no
}

// Held says what keeps an object of a kind that is to go and that the Dependency Controller guards; nil when nothing does.
func Held(kind string, obj Object) *conditions.Result {
	if !slices.Contains(obj.GetFinalizers(), Guard) {
		return nil
	}
	message := "the " + kind + " goes when what depends on it is deleted"
	if dependents := obj.Dependencies().Dependents; len(dependents) > 0 {
		message += ": " + strings.Join(dependents, ", ")
	}
	no := conditions.Waiting(ReasonHasDependents, message)
	return &no
}

// Reference is a field by which an object names another of the same tenant.
type Reference struct {
	// Field is the path of the field: spec.vpc.
	Field string
	// Kind and Name are what it names.
	Kind, Name string
	// By is the kind of the object that has the field.
	By string
}

// NotFound tells that what is named does not exist.
func (r Reference) NotFound() *conditions.Result {
	no := conditions.Waiting(r.Kind+"NotFound", fmt.Sprintf(
		"%s names %s %q, which does not exist in this namespace; create it, or make a new %s that names another", r.Field, r.Kind, r.Name, r.By))
	return &no
}

// NotReady tells that what is named is not Ready, and why by its conditions.
func (r Reference) NotReady(named []metav1.Condition) *conditions.Result {
	message := fmt.Sprintf("%s names %s %q, which is not ready yet", r.Field, r.Kind, r.Name)
	if why := conditions.Message(named); why != "" {
		message += ": " + why
	}
	no := conditions.Waiting(r.Kind+"NotReady", message)
	return &no
}

// Unready tells why what is named, which exists and has the conditions, cannot be used (yet); nil when it can.
func (r Reference) Unready(named metav1.Object, has []metav1.Condition) *conditions.Result {
	if named.GetDeletionTimestamp() != nil {
		no := conditions.Waiting(r.Kind+"Deleting", fmt.Sprintf(
			"%s names %s %q, which is being deleted; delete this %s too", r.Field, r.Kind, r.Name, r.By))
		return &no
	}
	if !conditions.IsReady(has, named.GetGeneration()) {
		return r.NotReady(has)
	}
	return nil
}
