package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// bootstrapReconciler makes the default VPC and Subnet, and makes them again when somebody deleted them. What they are is
// the other reconcilers' matter.
type bootstrapReconciler struct {
	client client.Client
	config Config
}

// defaultNetwork is the only request the reconciler gets.
var defaultNetwork = reconcile.Request{NamespacedName: client.ObjectKey{Name: "default-network"}}

func (r *bootstrapReconciler) setup(mgr ctrl.Manager) error {
	onDefault := func(name string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			if o.GetName() != name {
				return nil
			}
			return []reconcile.Request{defaultNetwork}
		})
	}
	atStart := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(defaultNetwork)
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).Named("net-bootstrap").
		Watches(&netv1.VPC{}, onDefault(netv1.DefaultVPC)).
		Watches(&netv1.Subnet{}, onDefault(netv1.DefaultSubnet)).
		WatchesRawSource(atStart).
		Complete(r)
}

// Reconcile makes what is missing of the default network. While the default VPC is being deleted it makes no Subnet in it:
// the VPC would wait for that for ever.
func (r *bootstrapReconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	vpc := &netv1.VPC{ObjectMeta: metav1.ObjectMeta{Name: netv1.DefaultVPC}}
	if err := r.ensure(ctx, vpc); err != nil {
		return reconcile.Result{}, err
	}
	subnet := &netv1.Subnet{
		ObjectMeta: metav1.ObjectMeta{Name: netv1.DefaultSubnet},
		Spec:       netv1.SubnetSpec{VPC: netv1.DefaultVPC, CIDR: r.config.InfrastructureCIDR.String()},
	}
	if vpc.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.ensure(ctx, subnet)
	}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(subnet), subnet)
	if err == nil && subnet.DeletionTimestamp.IsZero() && standingOf(subnet) == newcomer {
		// Made when the VPC's deletion was not known yet.
		err = r.client.Delete(ctx, subnet, exactly(subnet))
	}
	return settle(reconcile.Result{}, client.IgnoreNotFound(err))
}

// ensure reads the object, or makes it.
func (r *bootstrapReconciler) ensure(ctx context.Context, object client.Object) error {
	err := r.client.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		err = r.client.Create(ctx, object)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the default %T: %w", object, err)
	}
	return nil
}
