package claim

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Life is how far a Pod has come.
type Life int

// How far a Pod can have come.
const (
	// Alive: its sandbox may send.
	Alive Life = iota
	// Ended: Succeeded or Failed; the object still exists.
	Ended
	// Gone: no object of that UID exists.
	Gone
)

// PodLife looks a Pod up by its identity. A Pod that the cache does not know (yet) is asked for at the API server, so that
// a lagging cache never takes an address from a live Pod.
func PodLife(ctx context.Context, cached, live client.Reader, key client.ObjectKey, uid types.UID) (Life, error) {
	var pod corev1.Pod
	err := cached.Get(ctx, key, &pod)
	if client.IgnoreNotFound(err) != nil {
		return Alive, fmt.Errorf("read Pod %s: %w", key, err)
	}
	if err == nil && pod.UID == uid {
		if Finished(&pod) {
			return Ended, nil
		}
		return Alive, nil
	}
	meta := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	err = live.Get(ctx, key, &meta)
	switch {
	case apierrors.IsNotFound(err):
		return Gone, nil
	case err != nil:
		return Alive, fmt.Errorf("read Pod %s: %w", key, err)
	case meta.UID != uid:
		return Gone, nil
	}
	return Alive, nil
}
