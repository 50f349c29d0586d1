package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// leaseReconciler ends quarantines, and frees orphans: leases whose interface, Subnet or ExternalIP is gone. Those come about when a
// write meets a delete, or when somebody removes a finalizer by hand.
type leaseReconciler struct {
	client      client.Client
	live        client.Reader
	ipam        *ipam.Allocator
	quarantines *quarantines
}

func (r *leaseReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-lease").
		For(&netv1.IPLease{}).
		Watches(&netv1.NetworkInterface{}, mapped(func(ctx context.Context, nic *netv1.NetworkInterface) []reconcile.Request {
			return r.leases(ctx, ipam.FieldInterfaceUID, string(nic.UID))
		}), onDelete).
		Watches(&netv1.ExternalIP{}, mapped(func(ctx context.Context, eip *netv1.ExternalIP) []reconcile.Request {
			return r.leases(ctx, ipam.FieldInterfaceUID, string(eip.UID))
		}), onDelete).
		Watches(&netv1.Subnet{}, mapped(func(ctx context.Context, subnet *netv1.Subnet) []reconcile.Request {
			return r.leases(ctx, ipam.FieldSubnet, subnet.Name)
		}), onDelete).
		Watches(&netv1.PortBlock{}, mapped(func(_ context.Context, block *netv1.PortBlock) []reconcile.Request {
			return requests(fmt.Sprintf("%d.%s", ipam.ExternalVNI, block.Spec.Address))
		}), onDelete).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}

func (r *leaseReconciler) leases(ctx context.Context, index, value string) []reconcile.Request {
	var list netv1.IPLeaseList
	if err := r.client.List(ctx, &list, client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list IPLeases", index, value)
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, requests(list.Items[i].Name)...)
	}
	return out
}

// Reconcile frees one lease if it is an orphan, and deletes one whose quarantine is over.
func (r *leaseReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var lease netv1.IPLease
	err := r.client.Get(ctx, req.NamespacedName, &lease)
	if err != nil || !lease.DeletionTimestamp.IsZero() {
		r.quarantines.forget(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if quarantine, released := r.ipam.QuarantineOf(&lease); released {
		if left := quarantine - r.quarantines.passed(&lease); left > 0 {
			return reconcile.Result{RequeueAfter: left}, nil
		}
		if held, err := r.held(ctx, &lease); err != nil || held {
			return reconcile.Result{}, err // until the last block goes
		}
		return reconcile.Result{}, r.ipam.Delete(ctx, &lease)
	}
	// The cache may know of an orphan's end late, but then it tells; it may not know of a holder yet, so ask again.
	orphan, err := r.orphan(ctx, r.client, &lease)
	if err != nil || !orphan {
		return reconcile.Result{}, err
	}
	if orphan, err = r.orphan(ctx, r.live, &lease); err != nil || !orphan {
		return reconcile.Result{}, err
	}
	return settle(reconcile.Result{}, r.ipam.Release(ctx, &lease))
}

// held tells whether a node that was lost may still translate with an external address.
func (r *leaseReconciler) held(ctx context.Context, lease *netv1.IPLease) (bool, error) {
	if lease.Spec.Pool == "" {
		return false, nil
	}
	var blocks netv1.PortBlockList
	if err := r.live.List(ctx, &blocks, client.MatchingFields{blockByAddress: lease.Spec.Address}, client.Limit(1)); err != nil {
		return false, fmt.Errorf("list the PortBlocks of %s: %w", lease.Spec.Address, err)
	}
	return len(blocks.Items) > 0, nil
}

// orphan tells whether the lease's interface or Subnet, or its ExternalIP, by identity, does not exist. A Subnet's identity is its VNI.
func (r *leaseReconciler) orphan(ctx context.Context, from client.Reader, lease *netv1.IPLease) (bool, error) {
	if lease.Spec.Pool != "" {
		var eip netv1.ExternalIP
		err := from.Get(ctx, client.ObjectKey{Name: lease.Spec.Interface}, &eip)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read ExternalIP %s: %w", lease.Spec.Interface, err)
		}
		return apierrors.IsNotFound(err) || eip.UID != lease.Spec.InterfaceUID, nil
	}
	var nic netv1.NetworkInterface
	err := from.Get(ctx, client.ObjectKey{Name: lease.Spec.Interface}, &nic)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read NetworkInterface %s: %w", lease.Spec.Interface, err)
	case nic.UID != lease.Spec.InterfaceUID:
		return true, nil
	}
	vni, _, err := ipam.ParseLeaseName(lease.Name)
	if err != nil {
		return false, reconcile.TerminalError(err)
	}
	var subnet netv1.Subnet
	err = from.Get(ctx, client.ObjectKey{Name: lease.Spec.Subnet}, &subnet)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read Subnet %s: %w", lease.Spec.Subnet, err)
	}
	return subnet.Status.VNI != vni, nil
}
