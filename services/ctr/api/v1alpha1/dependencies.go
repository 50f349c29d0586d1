package v1alpha1

import "github.com/mnicloud/mnicloud/kit/dependency"

// Dependencies implements dependency.Object.
func (o *Container) Dependencies() dependency.Declared {
	return dependency.Declared{On: o.Spec.DependsOn, Seen: o.Status.Dependencies, Dependents: o.Status.Dependents}
}
