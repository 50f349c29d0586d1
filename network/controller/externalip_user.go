package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// claimant is a FloatingIP or a NATGateway that names an ExternalIP, or has its address.
type claimant struct {
	user netv1.ExternalIPUser
	meta metav1.Object
	// names says that its spec names the ExternalIP, has that its status has the address.
	names, has bool
}

func userKey(kind, name string) string { return kind + "/" + name }

// user decides who has the address. Who has it keeps it until it is gone, or neither names the ExternalIP nor has the address any more
// and no node has ports of it, not even released ones; then the oldest that names it gets it. An ExternalIP that goes waits for no released
// ones: its lease does. The cache says that nothing changes; a change is decided on what the API server says, and so is that nothing names a
// shared one that goes: who does may have its address any moment.
func (r *externalIPReconciler) user(ctx context.Context, eip *netv1.ExternalIP) (*netv1.ExternalIPUser, error) {
	decide := func(from client.Reader) (*netv1.ExternalIPUser, error) {
		all, err := r.claimants(ctx, from, eip)
		if err != nil {
			return nil, err
		}
		return chooseUser(eip, all), nil
	}
	if !eip.Spec.Shared || eip.DeletionTimestamp.IsZero() {
		if user, err := decide(r.client); err != nil || sameUser(user, eip.Status.UsedBy) {
			return user, err
		}
	}
	user, err := decide(r.live)
	if err != nil || sameUser(user, eip.Status.UsedBy) || eip.Status.UsedBy == nil || eip.Spec.Shared && user != nil {
		return user, err
	}
	var blocks netv1.PortBlockList
	if err := r.live.List(ctx, &blocks, client.MatchingFields{blockByAddress: eip.Status.Address}); err != nil {
		return nil, fmt.Errorf("list the PortBlocks of %s: %w", eip.Status.Address, err)
	}
	for i := range blocks.Items {
		if eip.DeletionTimestamp.IsZero() || blocks.Items[i].Spec.ReleasedAt == nil {
			return eip.Status.UsedBy, nil
		}
	}
	return user, nil
}

func sameUser(a, b *netv1.ExternalIPUser) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// claimants lists who names the ExternalIP or has its address.
func (r *externalIPReconciler) claimants(ctx context.Context, from client.Reader, eip *netv1.ExternalIP) ([]claimant, error) {
	var floating netv1.FloatingIPList
	if err := from.List(ctx, &floating, client.MatchingFields{floatingByExternalIP: eip.Name}); err != nil {
		return nil, fmt.Errorf("list the FloatingIPs of ExternalIP %s: %w", eip.Name, err)
	}
	var all []claimant
	for i := range floating.Items {
		f := &floating.Items[i]
		all = append(all, claimant{
			user: netv1.ExternalIPUser{Kind: netv1.KindFloatingIP, Name: f.Name}, meta: f, names: true,
			has: f.Status.ExternalAddress != "" && f.Status.ExternalAddress == eip.Status.Address,
		})
	}
	var gateways netv1.NATGatewayList
	if err := from.List(ctx, &gateways); err != nil {
		return nil, fmt.Errorf("list the NATGateways: %w", err)
	}
	for i := range gateways.Items {
		g := &gateways.Items[i]
		c := claimant{
			user: netv1.ExternalIPUser{Kind: netv1.KindNATGateway, Name: g.Name}, meta: g, names: slices.Contains(g.Spec.ExternalIPs, eip.Name),
			has: eip.Status.Address != "" && slices.Contains(g.Status.Addresses, eip.Status.Address),
		}
		if c.names || c.has {
			all = append(all, c)
		}
	}
	return all, nil
}

// chooseUser decides who of the claimants has the address. A shared one is used while any NATGateway names it or has its address.
func chooseUser(eip *netv1.ExternalIP, all []claimant) *netv1.ExternalIPUser {
	var best *claimant
	for i := range all {
		c := &all[i]
		if eip.Spec.Shared && c.user.Kind != netv1.KindNATGateway {
			continue
		}
		if eip.Status.UsedBy != nil && c.user == *eip.Status.UsedBy {
			return &c.user
		}
		if !eip.Spec.Shared && (!c.names || c.meta.GetDeletionTimestamp() != nil || eip.DeletionTimestamp != nil) {
			continue
		}
		if best == nil || older(c.meta, best.meta) {
			best = c
		}
	}
	if best == nil {
		return nil
	}
	return &best.user
}

// older tells whether a was made before b; those of one second are ordered by UID.
func older(a, b metav1.Object) bool {
	x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if !x.Equal(&y) {
		return x.Before(&y)
	}
	return a.GetUID() < b.GetUID()
}

// wantedExternal is the address that an ExternalIP asks for, maybe none, and why it cannot be had from its pool.
func wantedExternal(eip *netv1.ExternalIP, pool ipam.Pool, exists bool) (want netip.Addr, wrong *conditions.Result) {
	is := func(r conditions.Result) *conditions.Result { return &r }
	name := eip.Spec.Pool
	if eip.Spec.Address != "" {
		var err error
		if want, err = netip.ParseAddr(eip.Spec.Address); err != nil || !want.Is4() {
			return netip.Addr{}, is(conditions.Failed(reasonAddressInvalid, "spec.address: "+eip.Spec.Address+" is not an IPv4 address; make a new ExternalIP"))
		}
	}
	if !exists {
		return want, is(conditions.Waiting(reasonPoolNotFound, "spec.pool: AddressPool "+name+" does not exist; the cloud's owner can create it, or make a new ExternalIP that names another"))
	}
	if len(pool.CIDRs) == 0 {
		return want, is(conditions.Waiting(reasonPoolNotReady, "spec.pool: AddressPool "+name+" has no addresses yet"))
	}
	if want.IsValid() && !pool.Contains(want) {
		var ranges []string
		for _, c := range pool.CIDRs {
			ranges = append(ranges, c.String())
		}
		return want, is(conditions.Failed(reasonAddressInvalid, "spec.address: "+eip.Spec.Address+" is not in AddressPool "+name+" ("+strings.Join(ranges, ", ")+
			"); make a new ExternalIP that asks for one of its addresses, or for none"))
	}
	if has, err := netip.ParseAddr(eip.Status.Address); err == nil && !pool.Contains(has) {
		return want, is(conditions.Failed(reasonAddressOutside, "spec.pool: AddressPool "+name+" has "+has.String()+" no more; put its range back, or delete the ExternalIP"))
	}
	return want, nil
}
