package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// portBlockReconciler takes the PortBlocks of nodes that are gone, and those that a lost node does not give back. Such a node may still
// translate with them: it may run on without its object, or only be cut off. So a block is released first, which whoever hears of it goes by,
// and deleted, which makes its ports anybody's, when no flow can be left. A node that hears of it gives the block back by itself, and so ends
// the quarantine.
type portBlockReconciler struct {
	client      client.Client
	live        client.Reader
	config      Config
	quarantines *quarantines
}

// lostNodePatience is how long a node that is not Ready has to give a block back: longer than a node's restart, and no longer than who deletes a NATGateway would like to wait.
const lostNodePatience = time.Minute

func (r *portBlockReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-port-block").
		For(&netv1.PortBlock{}).
		Watches(&corev1.Node{}, mapped(func(ctx context.Context, node *corev1.Node) []reconcile.Request {
			return r.by(ctx, blockByNode, node.Name)
		}), onUpdate(readinessChanged)).
		Watches(&netv1.NATGateway{}, mapped(func(ctx context.Context, gateway *netv1.NATGateway) []reconcile.Request {
			return r.by(ctx, blockByGateway, gateway.Name)
		}), onUpdate(func(before, after *netv1.NATGateway) bool {
			return !slices.Equal(before.Status.Addresses, after.Status.Addresses)
		})).
		Complete(r)
}

func (r *portBlockReconciler) by(ctx context.Context, index, value string) []reconcile.Request {
	var list netv1.PortBlockList
	if err := r.client.List(ctx, &list, client.MatchingFields{index: value}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list PortBlocks", index, value)
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, requests(list.Items[i].Name)...)
	}
	return out
}

// Reconcile releases one PortBlock if its node does not exist, or has been lost while it should have given the block back, by what the API
// server says; and deletes one whose quarantine is over.
func (r *portBlockReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var block netv1.PortBlock
	if err := r.client.Get(ctx, req.NamespacedName, &block); err != nil {
		r.quarantines.forget(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if block.Spec.ReleasedAt != nil {
		if left := r.config.PortQuarantine - r.quarantines.passed(&block); left > 0 {
			return reconcile.Result{RequeueAfter: left}, nil
		}
		return settle(reconcile.Result{}, client.IgnoreNotFound(r.client.Delete(ctx, &block, exactly(&block))))
	}
	for _, from := range []client.Reader{r.client, r.live} {
		wait, holds, err := r.holds(ctx, from, &block)
		if err != nil || holds {
			return reconcile.Result{RequeueAfter: wait}, err
		}
	}
	base := block.DeepCopy()
	now := metav1.NewMicroTime(r.config.now())
	block.Spec.ReleasedAt = &now
	if err := client.IgnoreNotFound(r.client.Patch(ctx, &block, optimistic(base))); err != nil {
		return settle(reconcile.Result{}, fmt.Errorf("release PortBlock %s: %w", block.Name, err))
	}
	return reconcile.Result{}, nil
}

// holds tells whether a block stays its node's, and after what time that should be asked again; 0: only after a change.
func (r *portBlockReconciler) holds(ctx context.Context, from client.Reader, block *netv1.PortBlock) (wait time.Duration, holds bool, err error) {
	var node corev1.Node
	if err := from.Get(ctx, client.ObjectKey{Name: block.Spec.Node}, &node); err != nil {
		if err = client.IgnoreNotFound(err); err != nil {
			err = fmt.Errorf("read Node %s: %w", block.Spec.Node, err)
		}
		return 0, false, err
	}
	if nodeReady(&node) {
		return 0, true, nil
	}
	var gateway netv1.NATGateway
	err = from.Get(ctx, client.ObjectKey{Name: block.Spec.NATGateway}, &gateway)
	if client.IgnoreNotFound(err) != nil {
		return 0, false, fmt.Errorf("read NATGateway %s: %w", block.Spec.NATGateway, err)
	}
	if err == nil && slices.Contains(gateway.Status.Addresses, block.Spec.Address) {
		return 0, true, nil
	}
	left := lostNodePatience - time.Since(notReadySince(&node))
	return max(left, 0), left > 0, nil
}

// notReadySince is when a node was last seen to change its readiness. One that has never told is as old as its object.
func notReadySince(node *corev1.Node) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time
		}
	}
	return node.CreationTimestamp.Time
}

// wasReleased tells whether a block has become one that is released.
func wasReleased(before, after *netv1.PortBlock) bool {
	return before.Spec.ReleasedAt == nil && after.Spec.ReleasedAt != nil
}
