package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// floatingIPReconciler binds FloatingIPs to interfaces. What nodes go by, in the status, is written and taken back in one step.
type floatingIPReconciler struct {
	client client.Client
	live   client.Reader
}

func (r *floatingIPReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-floating-ip").
		For(&netv1.FloatingIP{}).
		// An update asks for those that name the interface before and after.
		Watches(&netv1.FloatingIP{}, mapped(func(ctx context.Context, fip *netv1.FloatingIP) []reconcile.Request {
			return r.by(ctx, floatingByInterface, fip.Spec.NetworkInterface)
		})).
		// One that moved away from an interface may still have it for a moment.
		Watches(&netv1.FloatingIP{}, mapped(r.whoWants), onUpdate(func(before, after *netv1.FloatingIP) bool {
			return bindingOf(before) != bindingOf(after)
		})).
		Watches(&netv1.ExternalIP{}, mapped(func(ctx context.Context, eip *netv1.ExternalIP) []reconcile.Request {
			return r.by(ctx, floatingByExternalIP, eip.Name)
		})).
		Watches(&netv1.NetworkInterface{}, mapped(func(ctx context.Context, nic *netv1.NetworkInterface) []reconcile.Request {
			return r.by(ctx, floatingByInterface, nic.Name)
		}), onCreateOrUpdate(bindingChanged)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}). // two that name one interface are decided one after the other
		Complete(r)
}

// bindingChanged tells whether an interface is another target than before.
func bindingChanged(before, after *netv1.NetworkInterface) bool {
	return targetChanged(before, after) || before.Status.VNI != after.Status.VNI || before.Spec.Node != after.Spec.Node ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
}

func (r *floatingIPReconciler) by(ctx context.Context, index, value string) []reconcile.Request {
	if value == "" {
		return nil
	}
	var list netv1.FloatingIPList
	if err := r.client.List(ctx, &list, client.MatchingFields{index: value}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list FloatingIPs", index, value)
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, requests(list.Items[i].Name)...)
	}
	return out
}

// whoWants are the FloatingIPs that name the interface which a FloatingIP has, or had.
func (r *floatingIPReconciler) whoWants(ctx context.Context, fip *netv1.FloatingIP) []reconcile.Request {
	if fip.Status.Address == "" {
		return nil
	}
	var nics netv1.NetworkInterfaceList
	if err := r.client.List(ctx, &nics, client.MatchingFields{interfaceByAddress: addressIn(fip.Status.VPCID, fip.Status.Address)}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "find the interface of a FloatingIP", "floatingIP", fip.Name)
	}
	var out []reconcile.Request
	for i := range nics.Items {
		out = append(out, r.by(ctx, floatingByInterface, nics.Items[i].Name)...)
	}
	return out
}

// Reconcile brings one FloatingIP towards its spec.
func (r *floatingIPReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var fip netv1.FloatingIP
	if err := r.client.Get(ctx, req.NamespacedName, &fip); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !fip.DeletionTimestamp.IsZero() {
		return settle(reconcile.Result{}, r.finalize(ctx, &fip))
	}
	return settle(reconcile.Result{}, r.provision(ctx, &fip))
}

func (r *floatingIPReconciler) provision(ctx context.Context, fip *netv1.FloatingIP) error {
	if err := finalizer.Ensure(ctx, r.client, fip, netv1.Finalizer); err != nil {
		return fmt.Errorf("add the finalizer to FloatingIP %s: %w", fip.Name, err)
	}
	eip, nic, err := r.ends(ctx, fip)
	if err != nil {
		return err
	}
	bound, result := bind(fip, eip, nic)
	if bound != (binding{}) {
		rival, err := r.rival(ctx, fip, bound)
		if err != nil {
			return err
		}
		if rival != nil {
			bound, result = binding{}, conditions.Waiting(reasonInterfaceInUse, "spec.networkInterface: NetworkInterface "+nic.Name+
				" is FloatingIP "+rival.Name+"'s; this one waits until that one is deleted or leads elsewhere, or name another interface")
		}
	}
	return r.write(ctx, fip, bound, result)
}

// ends reads the ExternalIP and the interface; each is nil when it does not exist.
func (r *floatingIPReconciler) ends(ctx context.Context, fip *netv1.FloatingIP) (eip *netv1.ExternalIP, nic *netv1.NetworkInterface, err error) {
	eip = &netv1.ExternalIP{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: fip.Spec.ExternalIP}, eip); err != nil {
		if eip = nil; client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("read ExternalIP %s: %w", fip.Spec.ExternalIP, err)
		}
	}
	if fip.Spec.NetworkInterface == "" {
		return eip, nil, nil
	}
	nic = &netv1.NetworkInterface{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: fip.Spec.NetworkInterface}, nic); err != nil {
		if nic = nil; client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("read NetworkInterface %s: %w", fip.Spec.NetworkInterface, err)
		}
	}
	return eip, nic, nil
}

// rival is the FloatingIP that has the interface before the given one, which asks for it. Of those that name the interface and have their
// external addresses the oldest has it, also when a younger one came first (as it can when a workload's interface is made anew): the
// younger one gives it back, and only then the older one gets it. Before a FloatingIP gets an interface the API server itself is asked.
func (r *floatingIPReconciler) rival(ctx context.Context, fip *netv1.FloatingIP, want binding) (*netv1.FloatingIP, error) {
	has := bindingOf(fip).target() == want.target()
	from := r.live
	if has {
		from = r.client
	}
	var list netv1.FloatingIPList
	if err := from.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list the FloatingIPs: %w", err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.UID == fip.UID {
			continue
		}
		if bindingOf(other).target() == want.target() && (!has || older(other, fip)) {
			return other, nil
		}
		// An older one that could have it, and has not got it yet. Of two made in one second the one that has it keeps it.
		if has && other.CreationTimestamp.Equal(&fip.CreationTimestamp) {
			continue
		}
		if other.Spec.NetworkInterface == fip.Spec.NetworkInterface && other.DeletionTimestamp.IsZero() && older(other, fip) {
			granted, err := r.granted(ctx, other)
			if err != nil || granted {
				return other, err
			}
		}
	}
	return nil, nil
}

// granted tells whether a FloatingIP has its external address, so that nothing but this controller's next look is missing.
func (r *floatingIPReconciler) granted(ctx context.Context, fip *netv1.FloatingIP) (bool, error) {
	var eip netv1.ExternalIP
	if err := r.live.Get(ctx, client.ObjectKey{Name: fip.Spec.ExternalIP}, &eip); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return uses(&eip, netv1.KindFloatingIP, fip.Name), nil
}

// uses tells whether an ExternalIP has an address, and who names it there has that.
func uses(eip *netv1.ExternalIP, kind, name string) bool {
	return eip.Status.Address != "" && eip.Status.UsedBy != nil && *eip.Status.UsedBy == netv1.ExternalIPUser{Kind: kind, Name: name}
}

// finalize withdraws the binding, and then lets the FloatingIP go: what has the address next comes after that.
func (r *floatingIPReconciler) finalize(ctx context.Context, fip *netv1.FloatingIP) error {
	if !controllerutil.ContainsFinalizer(fip, netv1.Finalizer) {
		return nil
	}
	if bindingOf(fip) != (binding{}) {
		if err := r.write(ctx, fip, binding{}, conditions.Progressing(reasonReleasing, "the address leads to the interface no more")); err != nil {
			return err
		}
	}
	return finalizer.Remove(ctx, r.client, fip, netv1.Finalizer)
}

func (r *floatingIPReconciler) write(ctx context.Context, fip *netv1.FloatingIP, bound binding, result conditions.Result) error {
	base := fip.DeepCopy()
	s := &fip.Status
	s.ExternalAddress, s.VPCID, s.VNI, s.Address, s.Node = bound.external, bound.vpcID, bound.vni, bound.address, bound.node
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(fip, result)
	if equality.Semantic.DeepEqual(base.Status, fip.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, fip, optimistic(base)); err != nil {
		return fmt.Errorf("write the status of FloatingIP %s: %w", fip.Name, err)
	}
	return nil
}
