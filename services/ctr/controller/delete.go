package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

// delete lets the Container go once its Pod has ended and its interface, which the Pod used, is gone after it. It asks the
// API server itself: a cache may not know yet what was made a moment ago.
func (r *reconciler) delete(ctx context.Context, c *ctrv1.Container) (time.Duration, error) {
	w := world{container: c, now: r.now()}
	if no := dependency.Held("Container", c); no != nil {
		// It runs on, and is shown as it is.
		all, err := r.look(ctx, c)
		if err != nil {
			return 0, err
		}
		return 0, r.tell(ctx, all, plan{result: *no})
	}
	if !slices.Contains(c.Finalizers, ctrv1.Finalizer) {
		if len(c.Finalizers) == 0 {
			return 0, nil
		}
		return 0, r.tell(ctx, w, plan{result: conditions.Held(c.Finalizers)})
	}
	err := find(ctx, r.live, client.ObjectKeyFromObject(c), &corev1.Pod{}, func(p *corev1.Pod) {
		if metav1.IsControlledBy(p, c) {
			w.pod = p
		}
	})
	if err != nil {
		return 0, err
	}
	err = find(ctx, r.live, client.ObjectKey{Name: string(c.UID)}, &netv1.NetworkInterface{}, func(n *netv1.NetworkInterface) { w.nic = n })
	if err != nil {
		return 0, err
	}
	switch {
	case w.pod != nil:
		return r.deletePod(ctx, w)
	case w.nic != nil:
		p := plan{step: removeInterface, result: conditions.Progressing("Deleting", "the address is being given back")}
		if w.nic.DeletionTimestamp.IsZero() {
			return 0, r.giveBack(ctx, w, p)
		}
		return 0, r.tell(ctx, w, p)
	}
	return 0, finalizer.Remove(ctx, r.client, c, ctrv1.Finalizer)
}

func (r *reconciler) deletePod(ctx context.Context, w world) (time.Duration, error) {
	var err error
	if w.node, err = r.nodeOf(ctx, w.pod.Spec.NodeName); err != nil {
		return 0, err
	}
	again := 2 * overdue
	switch {
	case w.pod.DeletionTimestamp.IsZero():
		err = r.remove(ctx, w.pod)
	case w.untilForced() <= 0:
		err = r.remove(ctx, w.pod, client.GracePeriodSeconds(0))
	default:
		again = w.untilForced()
	}
	if err != nil {
		return 0, err
	}
	return again, r.tell(ctx, w, plan{result: conditions.Progressing("Deleting", "the Pod is ending"+onNode(w.pod))})
}

func onNode(pod *corev1.Pod) string {
	if pod.Spec.NodeName == "" {
		return ""
	}
	return " on node " + pod.Spec.NodeName
}

// collect deletes interfaces made under the name for Containers that are no more: whose finalizer somebody else took away.
func (r *reconciler) collect(ctx context.Context, name types.NamespacedName, current types.UID) error {
	var list netv1.NetworkInterfaceList
	if err := r.client.List(ctx, &list, client.MatchingFields{interfaceByContainer: name.String()}); err != nil {
		return fmt.Errorf("list the interfaces of Container %s: %w", name, err)
	}
	strays := slices.DeleteFunc(list.Items, func(n netv1.NetworkInterface) bool {
		return types.UID(n.Name) == current || !n.DeletionTimestamp.IsZero()
	})
	if len(strays) == 0 {
		return nil
	}
	live := &ctrv1.Container{}
	if err := r.live.Get(ctx, name, live); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Container %s: %w", name, err)
	}
	for i := range strays {
		if types.UID(strays[i].Name) == live.UID {
			continue
		}
		if err := r.remove(ctx, &strays[i]); err != nil {
			return err
		}
	}
	return nil
}
