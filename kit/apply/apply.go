// Package apply writes to the API server only what differs: desired objects by server-side apply with one field owner per
// controller, and an object's status by one patch. A reconcile that changes nothing sends no request.
package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Status patches the status of after, which began as a copy of before, when the two differ. An object that is gone already
// is a success.
func Status(ctx context.Context, c client.Client, before, after client.Object) error {
	patch := client.MergeFrom(before)
	data, err := patch.Data(after)
	if err != nil {
		return fmt.Errorf("compare the status of %s: %w", client.ObjectKeyFromObject(after), err)
	}
	if bytes.Equal(data, []byte("{}")) {
		return nil
	}
	return client.IgnoreNotFound(c.Status().Patch(ctx, after, client.RawPatch(patch.Type(), data)))
}

// Object makes the fields of desired true on the server, as the given field owner, by server-side apply. Fields that the
// owner applied before and desired no longer has are removed; other owners' fields stay. live is the object as last read,
// with its managed fields, or nil if there is none; when it says all that desired says already, nothing is sent.
// desired holds only fields the owner owns; its status is not sent.
func Object(ctx context.Context, c client.Client, owner string, live, desired client.Object) error {
	want, err := content(c, desired)
	if err != nil {
		return err
	}
	if !missing(live) {
		have, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
		if err != nil {
			return fmt.Errorf("read %s: %w", client.ObjectKeyFromObject(live), err)
		}
		if contains(have, want.Object) && !ownsMore(live.GetManagedFields(), owner, want.Object) {
			return nil
		}
	}
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(want), client.FieldOwner(owner), client.ForceOwnership)
}

func missing(live client.Object) bool {
	return live == nil || reflect.ValueOf(live).IsNil() || live.GetResourceVersion() == ""
}

// content is what is sent for desired: its kind, name and the fields that are set.
func content(c client.Client, desired client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(desired, c.Scheme())
	if err != nil {
		return nil, fmt.Errorf("kind of %T: %w", desired, err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
	if err != nil {
		return nil, fmt.Errorf("render %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(desired), err)
	}
	// JSON numbers as the server sends them, so that desired and live compare.
	data, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("render %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(desired), err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		return nil, fmt.Errorf("render %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(desired), err)
	}
	u.SetGroupVersionKind(gvk)
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return u, nil
}

// contains tells whether have says all that want says. Lists are compared as a whole.
func contains(have, want map[string]any) bool {
	for key, w := range want {
		if key == "apiVersion" || key == "kind" {
			continue
		}
		h, found := have[key]
		if !found {
			return false
		}
		wm, isMap := w.(map[string]any)
		hm, wasMap := h.(map[string]any)
		switch {
		case isMap && wasMap:
			if !contains(hm, wm) {
				return false
			}
		case !sameValue(h, w):
			return false
		}
	}
	return true
}

// sameValue compares two JSON values whatever Go types their numbers have.
func sameValue(a, b any) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

// ownsMore tells whether owner must apply again although every wanted field is there: it has never applied this object, or
// once applied a field that is not wanted any more.
func ownsMore(managed []metav1.ManagedFieldsEntry, owner string, want map[string]any) bool {
	for _, entry := range managed {
		if entry.Manager != owner || entry.Operation != metav1.ManagedFieldsOperationApply || entry.Subresource != "" {
			continue
		}
		var set fieldpath.Set
		if entry.FieldsV1 == nil || set.FromJSON(entry.FieldsV1.GetRawReader()) != nil {
			return true
		}
		more := false
		set.Leaves().Iterate(func(path fieldpath.Path) {
			more = more || !has(want, path)
		})
		return more
	}
	return true
}

// has tells whether want has the field at path. It looks as far as the first list: lists compare as a whole elsewhere.
func has(want any, path fieldpath.Path) bool {
	for _, element := range path {
		if element.FieldName == nil {
			return true
		}
		m, ok := want.(map[string]any)
		if !ok {
			return true
		}
		if want, ok = m[*element.FieldName]; !ok {
			return false
		}
	}
	return true
}
