package controller

import (
	"crypto/rand"
	"fmt"
	"net"
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

// newMAC makes a random MAC address, unicast and locally administered (IEEE 802: the two lowest bits of the first octet).
func newMAC() (string, error) {
	mac := make(net.HardwareAddr, 6)
	if _, err := rand.Read(mac); err != nil {
		return "", fmt.Errorf("make a MAC address: %w", err)
	}
	mac[0] = mac[0]&^0x03 | 0x02
	return mac.String(), nil
}
