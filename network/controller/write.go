package controller

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// retryDelay is how long to wait before looking again when somebody else wrote first, or is about to.
const retryDelay = 50 * time.Millisecond

// optimistic is a merge patch against base that fails with a conflict when the object has changed since base was read.
func optimistic(base client.Object) client.Patch {
	return client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
}

// settle turns a conflict, which is no failure, into another look soon.
func settle(result reconcile.Result, err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: retryDelay}, nil
	}
	return result, err
}

// exactly are preconditions that let a delete through only for the very object that was read, unchanged.
func exactly(object client.Object) client.Preconditions {
	uid, version := object.GetUID(), object.GetResourceVersion()
	return client.Preconditions{UID: &uid, ResourceVersion: &version}
}
