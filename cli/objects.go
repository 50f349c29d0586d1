package cli

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// The kinds of services/auth, which have commands of their own.
var (
	tenantsResource  = authv1.GroupVersion.WithResource("tenants")
	usersResource    = authv1.GroupVersion.WithResource("users")
	accountsResource = authv1.GroupVersion.WithResource("serviceaccounts")
)

// kindOf are the kinds of those.
var kindOf = map[schema.GroupVersionResource]string{tenantsResource: "Tenant", usersResource: "User", accountsResource: "ServiceAccount"}

// whereabouts is where objects of the kind are: in the tenant that is worked in, or the cluster's.
func (c *connection) whereabouts(of schema.GroupVersionResource) (dynamic.ResourceInterface, error) {
	all, err := c.factory().DynamicClient()
	if err != nil {
		return nil, err
	}
	if of != accountsResource {
		return all.Resource(of), nil
	}
	namespace, _, err := c.ToRawKubeConfigLoader().Namespace()
	return all.Resource(of).Namespace(namespace), err
}

// writing is where an object of these kinds is written to, and its form there.
func (c *connection) writing(of schema.GroupVersionResource, o client.Object) (dynamic.ResourceInterface, *unstructured.Unstructured, error) {
	to, err := c.whereabouts(of)
	if err != nil {
		return nil, nil, err
	}
	u, err := untyped(of, o)
	return to, u, err
}

// create makes an object of these kinds.
func create(ctx context.Context, c *connection, of schema.GroupVersionResource, o client.Object) error {
	to, u, err := c.writing(of, o)
	if err != nil {
		return err
	}
	_, err = to.Create(ctx, u, metav1.CreateOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict})
	return err
}

// read reads an object of these kinds.
func read(ctx context.Context, c *connection, of schema.GroupVersionResource, name string, into client.Object) error {
	from, err := c.whereabouts(of)
	if err != nil {
		return err
	}
	u, err := from.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
}

// update writes an object of these kinds that nobody has changed since it was read.
func update(ctx context.Context, c *connection, of schema.GroupVersionResource, o client.Object) error {
	to, u, err := c.writing(of, o)
	if err != nil {
		return err
	}
	_, err = to.Update(ctx, u, metav1.UpdateOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict})
	return err
}

// merge changes fields of an object of these kinds.
func merge(ctx context.Context, c *connection, of schema.GroupVersionResource, name string, fields map[string]any) error {
	to, err := c.whereabouts(of)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	_, err = to.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict})
	return err
}

func untyped(of schema.GroupVersionResource, o client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(of.GroupVersion().WithKind(kindOf[of]))
	return u, nil
}
