package v1alpha1

import "github.com/mnicloud/mnicloud/kit/dependency"

// Dependencies implements dependency.Object.
func (o *Vpc) Dependencies() dependency.Declared {
	return dependency.Declared{On: o.Spec.DependsOn, Seen: o.Status.Dependencies, Dependents: o.Status.Dependents}
}

// Dependencies implements dependency.Object.
func (o *Subnet) Dependencies() dependency.Declared {
	return dependency.Declared{On: o.Spec.DependsOn, Seen: o.Status.Dependencies, Dependents: o.Status.Dependents}
}

// Dependencies implements dependency.Object.
func (o *RouteTable) Dependencies() dependency.Declared {
	return dependency.Declared{On: o.Spec.DependsOn, Seen: o.Status.Dependencies, Dependents: o.Status.Dependents}
}

// Dependencies implements dependency.Object.
func (o *SecurityGroup) Dependencies() dependency.Declared {
	return dependency.Declared{On: o.Spec.DependsOn, Seen: o.Status.Dependencies, Dependents: o.Status.Dependents}
}

// Dependencies implements dependency.Object.
func (o *ExternalIP) Dependencies() dependency.Declared {
	return dependency.Declared{On: o.Spec.DependsOn, Seen: o.Status.Dependencies, Dependents: o.Status.Dependents}
}

// Dependencies implements dependency.Object.
func (o *FloatingIP) Dependencies() dependency.Declared {
	return dependency.Declared{On: o.Spec.DependsOn, Seen: o.Status.Dependencies, Dependents: o.Status.Dependents}
}

// Dependencies implements dependency.Object.
func (o *NATGateway) Dependencies() dependency.Declared {
	return dependency.Declared{On: o.Spec.DependsOn, Seen: o.Status.Dependencies, Dependents: o.Status.Dependents}
}

// Dependencies implements dependency.Object.
func (o *VpcPeering) Dependencies() dependency.Declared {
	return dependency.Declared{On: o.Spec.DependsOn, Seen: o.Status.Dependencies, Dependents: o.Status.Dependents}
}
