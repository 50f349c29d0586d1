package cli

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

var tenantResource = schema.GroupVersionResource{Group: "auth.mnicloud.jp", Version: "v1alpha1", Resource: "tenants"}

// namespaceOf asks the API server in which namespace a tenant is. It is for who uses the cloud by a kubeconfig of the API server's, as its
// owner: who is logged in has the tenant's name for a namespace.
func (c *connection) namespaceOf(loader clientcmd.ClientConfig, tenant string) (string, error) {
	silenceLibraries()
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return "", errNoCloud
	}
	if err != nil {
		return "", err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", err
	}
	found, err := client.Resource(tenantResource).Get(c.flags.Context(), tenant, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("--tenant %s: the cloud has no such tenant: `mni get tenants` lists them", tenant)
	}
	if err != nil {
		return "", err
	}
	namespace, _, err := unstructured.NestedString(found.Object, "status", "namespace")
	if err == nil && namespace == "" {
		err = fmt.Errorf("--tenant %s: the tenant has no namespace yet; try again in a moment", tenant)
	}
	return namespace, err
}
