// Package v1alpha1 is the API group auth.mnicloud.jp: the people who use the cloud and the tenants they share, both cluster-scoped, and
// the service accounts of tenants. Kubernetes is their only store.
// +kubebuilder:object:generate=true
// +groupName=auth.mnicloud.jp
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is auth.mnicloud.jp/v1alpha1.
	GroupVersion = schema.GroupVersion{Group: "auth.mnicloud.jp", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the group's kinds.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &User{}, &UserList{}, &Tenant{}, &TenantList{}, &ServiceAccount{}, &ServiceAccountList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
