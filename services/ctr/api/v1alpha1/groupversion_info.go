// Package v1alpha1 is the API group ctr.mnicloud.jp: a tenant's containers.
// All kinds live in a tenant's namespace.
// +kubebuilder:object:generate=true
// +groupName=ctr.mnicloud.jp
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is ctr.mnicloud.jp/v1alpha1.
	GroupVersion = schema.GroupVersion{Group: "ctr.mnicloud.jp", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the group's kinds.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Container{}, &ContainerList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
