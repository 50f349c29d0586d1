package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// externalIPReconciler gives ExternalIPs their addresses, and each address to one FloatingIP or NATGateway at a time: status.usedBy is
// what those go by, so that no two ever have one.
type externalIPReconciler struct {
	client client.Client
	live   client.Reader
	config Config
	ipam   *ipam.Allocator
}

func (r *externalIPReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-external-ip").
		For(&netv1.ExternalIP{}).
		Watches(&netv1.AddressPool{}, mapped(func(ctx context.Context, pool *netv1.AddressPool) []reconcile.Request {
			return r.by(ctx, externalIPByPool, pool.Name)
		})).
		Watches(&netv1.IPLease{}, mapped(r.ofLease), onDelete).
		Watches(&netv1.FloatingIP{}, mapped(func(_ context.Context, fip *netv1.FloatingIP) []reconcile.Request {
			return requests(fip.Spec.ExternalIP)
		})).
		// An update asks for the ExternalIPs named before and after.
		Watches(&netv1.NATGateway{}, mapped(func(_ context.Context, nat *netv1.NATGateway) []reconcile.Request {
			return requests(nat.Spec.ExternalIPs...)
		})).
		// One that a gateway has dropped from its spec is still in its status for a moment.
		Watches(&netv1.NATGateway{}, mapped(func(ctx context.Context, nat *netv1.NATGateway) []reconcile.Request {
			return r.by(ctx, externalIPByUser, userKey(netv1.KindNATGateway, nat.Name))
		})).
		Watches(&netv1.PortBlock{}, mapped(func(ctx context.Context, block *netv1.PortBlock) []reconcile.Request {
			return r.by(ctx, externalIPByAddress, block.Spec.Address)
		}), onUpdate(wasReleased)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.config.Workers}).
		Complete(r)
}

func (r *externalIPReconciler) by(ctx context.Context, index, value string) []reconcile.Request {
	var list netv1.ExternalIPList
	if err := r.client.List(ctx, &list, client.MatchingFields{index: value}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list ExternalIPs", index, value)
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, requests(list.Items[i].Name)...)
	}
	return out
}

// ofLease are the ExternalIP that had a lease, and those without an address: one is free when the lease goes.
func (r *externalIPReconciler) ofLease(ctx context.Context, lease *netv1.IPLease) []reconcile.Request {
	if lease.Spec.Pool == "" {
		return nil
	}
	return append(r.by(ctx, externalIPByAddress, ""), requests(lease.Spec.Interface)...)
}

// Reconcile brings one ExternalIP towards its spec.
func (r *externalIPReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var eip netv1.ExternalIP
	if err := r.client.Get(ctx, req.NamespacedName, &eip); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !eip.DeletionTimestamp.IsZero() {
		return settle(reconcile.Result{}, r.finalize(ctx, &eip))
	}
	return settle(reconcile.Result{}, r.provision(ctx, &eip))
}

func (r *externalIPReconciler) provision(ctx context.Context, eip *netv1.ExternalIP) error {
	if err := finalizer.Ensure(ctx, r.client, eip, netv1.Finalizer); err != nil {
		return fmt.Errorf("add the finalizer to ExternalIP %s: %w", eip.Name, err)
	}
	base := eip.DeepCopy()
	result, err := r.allocate(ctx, eip)
	if err != nil {
		return err
	}
	if eip.Status.Address != "" {
		if eip.Status.UsedBy, err = r.user(ctx, eip); err != nil {
			return err
		}
	}
	return r.write(ctx, base, eip, result)
}

// allocate leases the address. An address that was had once is kept, whatever becomes of the pool.
func (r *externalIPReconciler) allocate(ctx context.Context, eip *netv1.ExternalIP) (conditions.Result, error) {
	var object netv1.AddressPool
	err := r.client.Get(ctx, client.ObjectKey{Name: eip.Spec.Pool}, &object)
	if client.IgnoreNotFound(err) != nil {
		return conditions.Result{}, fmt.Errorf("read AddressPool %s: %w", eip.Spec.Pool, err)
	}
	pool := poolOf(&object)
	current, _ := netip.ParseAddr(eip.Status.Address)
	want, wrong := wantedExternal(eip, pool, err == nil && object.DeletionTimestamp.IsZero())
	if wrong != nil && !current.IsValid() {
		return *wrong, nil
	}
	pool.Name = eip.Spec.Pool
	address, err := r.ipam.EnsureExternal(ctx, pool, ipam.Holder{Name: eip.Name, UID: eip.UID}, want, current)
	if lost := new(ipam.InUseError); errors.As(err, &lost) && current.IsValid() {
		// Somebody took the lease away and another has it: the address is not this one's any more.
		eip.Status.Address, eip.Status.Pool, eip.Status.UsedBy = "", "", nil
		return conditions.Progressing(reasonAllocating, "the lease of "+current.String()+" was lost; the ExternalIP gets another address"), nil
	}
	if err != nil {
		return claim.AsResult(err)
	}
	eip.Status.Address, eip.Status.Pool = address.String(), eip.Spec.Pool
	if wrong != nil {
		return *wrong, nil
	}
	return conditions.Ready(reasonReady, "the ExternalIP has its address"), nil
}

// poolOf is what the allocator needs of a pool: the ranges that it really has.
func poolOf(object *netv1.AddressPool) ipam.Pool {
	pool := ipam.Pool{Name: object.Name}
	for _, c := range object.Status.CIDRs {
		if cidr, err := netip.ParsePrefix(c); err == nil && cidr.Addr().Is4() {
			pool.CIDRs = append(pool.CIDRs, cidr)
		}
	}
	return pool
}

// finalize releases the address once nothing has it: who had it has been withdrawn by then.
func (r *externalIPReconciler) finalize(ctx context.Context, eip *netv1.ExternalIP) error {
	if !controllerutil.ContainsFinalizer(eip, netv1.Finalizer) {
		return nil
	}
	base := eip.DeepCopy()
	var user *netv1.ExternalIPUser
	if eip.Status.Address != "" { // otherwise who names it has nothing of it, and gets nothing
		var err error
		if user, err = r.user(ctx, eip); err != nil {
			return err
		}
	}
	eip.Status.UsedBy = user
	if user != nil {
		return r.write(ctx, base, eip, conditions.Waiting(reasonExternalIPInUse, "the ExternalIP goes when "+user.Kind+" "+user.Name+" has given "+eip.Status.Address+" back; delete that one"))
	}
	if base.Status.UsedBy != nil {
		// Nobody may find a user that reads the old status beside the next holder of the address.
		return r.write(ctx, base, eip, conditions.Progressing(reasonReleasing, "nothing uses the address any more; it is given back"))
	}
	if err := r.ipam.ReleaseAll(ctx, ipam.Holder{Name: eip.Name, UID: eip.UID}); err != nil {
		return err
	}
	return finalizer.Remove(ctx, r.client, eip, netv1.Finalizer)
}

func (r *externalIPReconciler) write(ctx context.Context, base, eip *netv1.ExternalIP, result conditions.Result) error {
	s := &eip.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(eip, result)
	if equality.Semantic.DeepEqual(base.Status, eip.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, eip, optimistic(base)); err != nil {
		return fmt.Errorf("write the status of ExternalIP %s: %w", eip.Name, err)
	}
	return nil
}
