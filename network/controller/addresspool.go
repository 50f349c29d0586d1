package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// addressPoolReconciler decides which ranges are a pool's: no two pools share an address, and none has a reserved one.
type addressPoolReconciler struct {
	client client.Client
	live   client.Reader
	config Config
}

func (r *addressPoolReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-address-pool").
		For(&netv1.AddressPool{}).
		Watches(&netv1.AddressPool{}, mapped(r.others)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}). // two that overlap are decided one after the other
		Complete(r)
}

// others are all other pools: what they were refused for may be gone.
func (r *addressPoolReconciler) others(ctx context.Context, pool *netv1.AddressPool) []reconcile.Request {
	var list netv1.AddressPoolList
	if err := r.client.List(ctx, &list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the AddressPools")
	}
	var out []reconcile.Request
	for i := range list.Items {
		if list.Items[i].Name != pool.Name {
			out = append(out, requests(list.Items[i].Name)...)
		}
	}
	return out
}

// Reconcile writes one AddressPool's status.
func (r *addressPoolReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var all netv1.AddressPoolList
	if err := r.live.List(ctx, &all); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the AddressPools: %w", err)
	}
	i := slices.IndexFunc(all.Items, func(p netv1.AddressPool) bool { return p.Name == req.Name })
	if i < 0 {
		return reconcile.Result{}, nil
	}
	pool := &all.Items[i]
	base := pool.DeepCopy()
	cidrs, result := decidePool(base, all.Items, r.config)
	s := &pool.Status
	s.CIDRs = cidrs
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(pool, result)
	if equality.Semantic.DeepEqual(base.Status, pool.Status) {
		return reconcile.Result{}, nil
	}
	if err := r.client.Status().Patch(ctx, pool, optimistic(base)); err != nil {
		return settle(reconcile.Result{}, client.IgnoreNotFound(err))
	}
	return reconcile.Result{}, nil
}

// decidePool returns the ranges that are the pool's among all pools. While one of those it asks for cannot be had it keeps what
// it has.
func decidePool(pool *netv1.AddressPool, all []netv1.AddressPool, config Config) ([]string, conditions.Result) {
	kept := slices.DeleteFunc(slices.Clone(pool.Status.CIDRs), func(c string) bool {
		_, taken := poolRival(pool, c, all)
		return taken
	})
	for _, c := range pool.Spec.CIDRs {
		cidr, err := netip.ParsePrefix(c)
		if err != nil || !cidr.Addr().Is4() || cidr != cidr.Masked() {
			return kept, conditions.Failed(reasonCIDRInvalid, "spec.cidrs: "+c+" is not a canonical IPv4 range; correct it"+still(kept))
		}
		if reserved, met := config.reservedBy(cidr); met && !slices.Contains(kept, c) {
			return kept, conditions.Failed(reasonCIDRReserved, "spec.cidrs: "+c+" meets "+reserved.String()+", which is reserved; choose another range"+still(kept))
		}
		if rival, taken := poolRival(pool, c, all); taken {
			return kept, conditions.Failed(reasonCIDROverlap, "spec.cidrs: "+c+" overlaps with "+strings.Join(rival.Spec.CIDRs, ", ")+" of AddressPool "+rival.Name+
				"; choose another range, or take it away from that one"+still(kept))
		}
	}
	return slices.Clone(pool.Spec.CIDRs), conditions.Ready(reasonReady, "the ranges are the pool's")
}

func still(kept []string) string {
	if len(kept) == 0 {
		return ""
	}
	return ". Until then the pool keeps " + strings.Join(kept, ", ")
}

// poolRival returns the pool that has addresses of a range before the given pool: it has them already and this one does not, or
// it is the older one.
func poolRival(pool *netv1.AddressPool, cidr string, all []netv1.AddressPool) (*netv1.AddressPool, bool) {
	has := slices.Contains(pool.Status.CIDRs, cidr)
	for i := range all {
		other := &all[i]
		if other.UID == pool.UID {
			continue
		}
		older := older(other, pool)
		if overlapsAny(cidr, other.Status.CIDRs) && (!has || older) {
			return other, true
		}
		if !has && older && other.DeletionTimestamp.IsZero() && overlapsAny(cidr, other.Spec.CIDRs) {
			return other, true
		}
	}
	return nil, false
}

func overlapsAny(cidr string, others []string) bool {
	x, err := netip.ParsePrefix(cidr)
	return err == nil && slices.ContainsFunc(others, func(other string) bool {
		y, err := netip.ParsePrefix(other)
		return err == nil && x.Overlaps(y)
	})
}
