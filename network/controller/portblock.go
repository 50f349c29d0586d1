package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// portBlockReconciler deletes the PortBlocks of nodes that are gone. A node that is there gives its own back by itself.
type portBlockReconciler struct {
	client client.Client
	live   client.Reader
}

func (r *portBlockReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-port-block").
		For(&netv1.PortBlock{}).
		Watches(&corev1.Node{}, mapped(func(ctx context.Context, node *corev1.Node) []reconcile.Request {
			var list netv1.PortBlockList
			if err := r.client.List(ctx, &list, client.MatchingFields{blockByNode: node.Name}); err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "list the PortBlocks of a node", "node", node.Name)
			}
			out := make([]reconcile.Request, 0, len(list.Items))
			for i := range list.Items {
				out = append(out, requests(list.Items[i].Name)...)
			}
			return out
		}), onDelete).
		Complete(r)
}

// Reconcile deletes one PortBlock if its node does not exist, by what the API server says.
func (r *portBlockReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var block netv1.PortBlock
	if err := r.client.Get(ctx, req.NamespacedName, &block); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	for _, from := range []client.Reader{r.client, r.live} {
		var node corev1.Node
		err := from.Get(ctx, client.ObjectKey{Name: block.Spec.Node}, &node)
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("read Node %s: %w", block.Spec.Node, err)
		}
		if err == nil {
			return reconcile.Result{}, nil
		}
	}
	return settle(reconcile.Result{}, client.IgnoreNotFound(r.client.Delete(ctx, &block, exactly(&block))))
}
