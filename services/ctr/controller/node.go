package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// answer is how a Pod's node is.
type answer int

const (
	// answers: the node is Ready, or none is named.
	answers answer = iota
	// failing: the node speaks, but cannot run Pods now; it may still end one in order.
	failing
	// silent: nobody has heard of the node for the cluster's grace period.
	silent
	// removed: there is no such node any more.
	removed
)

// podByNode is an index of Pods by their node's name.
const podByNode = "spec.nodeName"

// lookAtNodes fills in how the Pod's node is or, as long as it has none, the one that the spec asks for.
func (r *reconciler) lookAtNodes(ctx context.Context, w *world) (err error) {
	switch {
	case w.pod == nil:
	case w.pod.Spec.NodeName == "":
		w.asked, err = r.nodeOf(ctx, w.container.Spec.Node)
	default:
		w.node, err = r.nodeOf(ctx, w.pod.Spec.NodeName)
	}
	return err
}

// nodeOf tells how the node of that name is; "" is none. That it is not well is asked of the API server itself.
func (r *reconciler) nodeOf(ctx context.Context, name string) (answer, error) {
	if name == "" {
		return answers, nil
	}
	key := client.ObjectKey{Name: name}
	for _, from := range []client.Reader{r.pods, r.live} {
		how, err := nodeAnswer(ctx, from, key)
		if err != nil || how == answers || from == r.live {
			return how, err
		}
	}
	return answers, nil
}

func nodeAnswer(ctx context.Context, from client.Reader, key client.ObjectKey) (answer, error) {
	node := &corev1.Node{}
	err := from.Get(ctx, key, node)
	if apierrors.IsNotFound(err) {
		return removed, nil
	}
	if err != nil {
		return answers, fmt.Errorf("read node %s: %w", key.Name, err)
	}
	return answerOf(node), nil
}

func answerOf(node *corev1.Node) answer {
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type != corev1.NodeReady:
		case c.Status == corev1.ConditionTrue:
			return answers
		case c.Status == corev1.ConditionUnknown:
			return silent
		}
	}
	return failing
}

// nodeChanged lets through nodes that are removed, and those that come to answer otherwise.
var nodeChanged = predicate.TypedFuncs[*corev1.Node]{
	CreateFunc: func(event.TypedCreateEvent[*corev1.Node]) bool { return false },
	UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
		return answerOf(e.ObjectOld) != answerOf(e.ObjectNew)
	},
}

// containersOn are the Containers whose Pods are on a node; each Pod has its Container's name.
func (r *reconciler) containersOn() handler.TypedEventHandler[*corev1.Node, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, node *corev1.Node) []reconcile.Request {
		var list corev1.PodList
		if err := r.pods.List(ctx, &list, client.MatchingFields{podByNode: node.Name}, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "list the Pods of a node", "node", node.Name)
			return nil
		}
		requests := make([]reconcile.Request, 0, len(list.Items))
		for i := range list.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
		return requests
	})
}

// stripNode keeps of a node what answerOf reads.
func stripNode(o any) (any, error) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return nil, fmt.Errorf("cache of nodes: got a %T", o)
	}
	node.ManagedFields, node.Labels, node.Annotations, node.Spec = nil, nil, nil, corev1.NodeSpec{}
	node.Status = corev1.NodeStatus{Conditions: node.Status.Conditions}
	return node, nil
}
