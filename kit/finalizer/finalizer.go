// Package finalizer adds and removes a controller's finalizer. A controller adds it before its first side effect and
// removes it when everything it made is gone.
package finalizer

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Ensure puts the finalizer on obj, if it is not there yet, and updates obj to what the server stored. It writes only when
// the finalizer is missing. An object that somebody else changed meanwhile gives a Conflict: reconcile again.
func Ensure(ctx context.Context, c client.Client, obj client.Object, name string) error {
	if !controllerutil.AddFinalizer(obj, name) {
		return nil
	}
	return patch(ctx, c, obj)
}

// Remove takes the finalizer off obj, if it is there. An object that is gone already is a success.
func Remove(ctx context.Context, c client.Client, obj client.Object, name string) error {
	if !controllerutil.RemoveFinalizer(obj, name) {
		return nil
	}
	return client.IgnoreNotFound(patch(ctx, c, obj))
}

// patch sends the finalizers only, and only to the version that was read: a merge patch replaces the whole list.
func patch(ctx context.Context, c client.Client, obj client.Object) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"finalizers": obj.GetFinalizers(), "resourceVersion": obj.GetResourceVersion(),
	}})
	if err != nil {
		return err
	}
	return c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data))
}
