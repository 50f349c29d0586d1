package ipam

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// Fields of IPLeases that the cache indexes and the API server selects by.
const (
	// FieldInterfaceUID is the UID of the interface that has the lease.
	FieldInterfaceUID = "spec.interfaceUID"
	// FieldSubnet is the name of the Subnet the lease is of.
	FieldSubnet = "spec.subnet"
)

// Allocator makes and removes IPLeases.
type Allocator struct {
	// Client reads from a cache (with an index on FieldInterfaceUID) and writes to the API server.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Quarantine is how long nobody gets an address of the default Subnet, or an external one, again that was given back: until every
	// node that is alive has forgotten who had it. Those of other Subnets can be had at once: they are one VPC's own.
	Quarantine time.Duration
}

// quarantine is how long addresses of the VNI's Subnet stay unused after they are given back.
func (a *Allocator) quarantine(vni uint32) time.Duration {
	if vni == netv1.DefaultVNI || vni == ExternalVNI {
		return a.Quarantine
	}
	return 0
}

// QuarantineOf is how long the lease's address, which was given back, stays unused; false while it is in use.
func (a *Allocator) QuarantineOf(lease *netv1.IPLease) (time.Duration, bool) {
	vni, _, err := ParseLeaseName(lease.Name)
	if err != nil || lease.Spec.ReleasedAt == nil {
		return 0, false
	}
	return a.quarantine(vni), true
}

// Network is what the allocator needs to know of a Subnet.
type Network struct {
	// Subnet is the Subnet's name.
	Subnet string
	// Pool is the name of the AddressPool, where the addresses are external ones and there is no Subnet.
	Pool string
	// VPC is the name of the Subnet's VPC.
	VPC string
	// VNI is the Subnet's VXLAN Network Identifier.
	VNI uint32
	// CIDR is the Subnet's range.
	CIDR netip.Prefix
}

// Holder is the interface, or the ExternalIP, that a lease is for.
type Holder struct {
	// Name of the object.
	Name string
	// UID of the object: another of the same name is another holder.
	UID types.UID
}

// Ensure returns the address that the holder has in the network, leasing one when it has none. With a valid want it is that
// address or an *InUseError. Current is the address that the holder's status tells the world: a holder keeps it (also when
// its lease was lost and nobody took it: else *InUseError), and other leases of the holder in the network are freed only
// once current says so, so that a published address always has a lease. When nothing is free: *ExhaustedError.
//
// The cache may not know yet of a lease made just now (before a restart, or a status write that failed). The holder then
// tries the same addresses in the same order, finds its own lease, and has it. Only when an earlier address of that order
// became free meanwhile it gets a second lease, which is freed by the next call that sees both.
func (a *Allocator) Ensure(ctx context.Context, network Network, holder Holder, want, current netip.Addr) (netip.Addr, error) {
	if !want.IsValid() && current.IsValid() && network.CIDR.Contains(current) {
		want = current
	}
	return a.ensure(ctx, network, holder, want, current, Range{network.CIDR}.Candidates(string(holder.UID)), &ExhaustedError{
		Subnet: network.Subnet, CIDR: network.CIDR, Capacity: Range{network.CIDR}.Capacity(), Quarantine: a.quarantine(network.VNI),
	})
}

// ensure is Ensure with the addresses that may be had, and the error when none is free.
func (a *Allocator) ensure(ctx context.Context, network Network, holder Holder, want, current netip.Addr, candidates iter.Seq[netip.Addr], exhausted error) (netip.Addr, error) {
	held, err := a.held(ctx, network, holder)
	if err != nil {
		return netip.Addr{}, err
	}
	if keep, ok := choose(held, want); ok {
		return keep, a.releaseOthers(ctx, held, keep, current)
	}
	if want.IsValid() {
		return a.leaseWanted(ctx, network, holder, want)
	}
	return a.leaseAny(ctx, network, holder, candidates, exhausted)
}

// heldLease is one lease that a holder has.
type heldLease struct {
	address netip.Addr
	object  *netv1.IPLease
}

// choose picks, of the addresses held (lowest first), the one to keep; ok is false when another one is needed.
func choose(held []heldLease, want netip.Addr) (keep netip.Addr, ok bool) {
	if want.IsValid() {
		return want, slices.ContainsFunc(held, func(h heldLease) bool { return h.address == want })
	}
	if len(held) > 0 {
		return held[0].address, true
	}
	return netip.Addr{}, false
}

// held lists the leases the holder has in the network, lowest address first.
func (a *Allocator) held(ctx context.Context, network Network, holder Holder) ([]heldLease, error) {
	var list netv1.IPLeaseList
	if err := a.Client.List(ctx, &list, client.MatchingFields{FieldInterfaceUID: string(holder.UID)}); err != nil {
		return nil, fmt.Errorf("list the leases of NetworkInterface %s: %w", holder.Name, err)
	}
	var held []heldLease
	for i := range list.Items {
		lease := &list.Items[i]
		vni, address, err := ParseLeaseName(lease.Name)
		if err == nil && vni == network.VNI && inUse(lease) {
			held = append(held, heldLease{address, lease})
		}
	}
	slices.SortFunc(held, func(x, y heldLease) int { return x.address.Compare(y.address) })
	return held, nil
}

// inUse tells whether the lease's interface has its address.
func inUse(lease *netv1.IPLease) bool {
	return lease.DeletionTimestamp.IsZero() && lease.Spec.ReleasedAt == nil
}

// leaseWanted leases the one address asked for.
func (a *Allocator) leaseWanted(ctx context.Context, network Network, holder Holder, want netip.Addr) (netip.Addr, error) {
	other, free, err := a.holderOf(ctx, network, want)
	if err != nil {
		return netip.Addr{}, err
	}
	if free {
		var ours bool
		if ours, other, err = a.create(ctx, network, holder, want); err != nil || ours {
			return want, err
		}
	}
	return netip.Addr{}, &InUseError{Address: want, Subnet: network.Subnet, Pool: network.Pool, Holder: other}
}

// leaseAny leases the first candidate that nobody has.
func (a *Allocator) leaseAny(ctx context.Context, network Network, holder Holder, candidates iter.Seq[netip.Addr], exhausted error) (netip.Addr, error) {
	for address := range candidates {
		_, free, err := a.holderOf(ctx, network, address)
		if err != nil {
			return netip.Addr{}, err
		}
		if !free {
			continue
		}
		ours, _, err := a.create(ctx, network, holder, address)
		if err != nil {
			return netip.Addr{}, err
		}
		if ours {
			return address, nil
		}
	}
	return netip.Addr{}, exhausted
}

// holderOf is, as far as the cache knows, the name of the interface that has the address ("" when it was just given back), or
// that it is free.
func (a *Allocator) holderOf(ctx context.Context, network Network, address netip.Addr) (name string, free bool, err error) {
	var lease netv1.IPLease
	err = a.Client.Get(ctx, client.ObjectKey{Name: LeaseName(network.VNI, address)}, &lease)
	if apierrors.IsNotFound(err) {
		return "", true, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read the lease of %s: %w", address, err)
	}
	if !inUse(&lease) {
		return "", false, nil
	}
	return lease.Spec.Interface, false, nil
}

// create tries to lease one address. When another interface has it, other is that interface's name; "" when it was just given
// back.
func (a *Allocator) create(ctx context.Context, network Network, holder Holder, address netip.Addr) (ours bool, other string, err error) {
	lease := &netv1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: LeaseName(network.VNI, address), Labels: Labels(network.VPC, network.Subnet)},
		Spec: netv1.IPLeaseSpec{
			Subnet: network.Subnet, Pool: network.Pool, Address: address.String(), Interface: holder.Name, InterfaceUID: holder.UID,
		},
	}
	err = a.Client.Create(ctx, lease)
	if err == nil {
		return true, "", nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return false, "", fmt.Errorf("create IPLease %s: %w", lease.Name, err)
	}
	var existing netv1.IPLease
	err = a.Live.Get(ctx, client.ObjectKeyFromObject(lease), &existing)
	if apierrors.IsNotFound(err) {
		return false, "", nil
	}
	if err != nil {
		return false, "", fmt.Errorf("read IPLease %s, which exists already: %w", lease.Name, err)
	}
	if !inUse(&existing) {
		return false, "", nil
	}
	return existing.Spec.InterfaceUID == holder.UID, existing.Spec.Interface, nil
}

// releaseOthers frees what the holder has besides the address to keep, once that address is the published one.
func (a *Allocator) releaseOthers(ctx context.Context, held []heldLease, keep, current netip.Addr) error {
	if keep != current {
		return nil
	}
	var errs []error
	for _, h := range held {
		if h.address != keep {
			errs = append(errs, a.Release(ctx, h.object))
		}
	}
	return errors.Join(errs...)
}

// Release gives back the address of the lease that was read, and never that of another one of the same name made since. An
// address that has a quarantine keeps its lease, marked, for that long; the caller deletes it then, with Delete.
func (a *Allocator) Release(ctx context.Context, lease *netv1.IPLease) error {
	if lease.Spec.ReleasedAt != nil {
		return nil
	}
	if vni, _, err := ParseLeaseName(lease.Name); err != nil || a.quarantine(vni) == 0 {
		return a.Delete(ctx, lease)
	}
	released, now := lease.DeepCopy(), metav1.NowMicro()
	released.Spec.ReleasedAt = &now
	err := a.Client.Patch(ctx, released, client.MergeFromWithOptions(lease, client.MergeFromWithOptimisticLock{}))
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("release IPLease %s: %w", lease.Name, err)
	}
	return nil
}

// Delete deletes the lease that was read, and never another one of the same name made since.
func (a *Allocator) Delete(ctx context.Context, lease *netv1.IPLease) error {
	err := a.Client.Delete(ctx, lease, client.Preconditions{UID: &lease.UID})
	// A conflict says that the lease read is gone and the name is another lease's now.
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete IPLease %s: %w", lease.Name, err)
}

// ReleaseAll releases every lease that the cache knows the holder to have, in any Subnet. One that the cache does not know of
// yet outlives its holder and is freed as an orphan.
func (a *Allocator) ReleaseAll(ctx context.Context, holder Holder) error {
	var list netv1.IPLeaseList
	if err := a.Client.List(ctx, &list, client.MatchingFields{FieldInterfaceUID: string(holder.UID)}); err != nil {
		return fmt.Errorf("list the leases of NetworkInterface %s: %w", holder.Name, err)
	}
	var errs []error
	for i := range list.Items {
		errs = append(errs, a.Release(ctx, &list.Items[i]))
	}
	return errors.Join(errs...)
}

// Labels are the labels of what belongs to a VPC and a Subnet. A name too long for a label's value has none.
func Labels(vpc, subnet string) map[string]string {
	labels := map[string]string{}
	for key, name := range map[string]string{netv1.LabelVPC: vpc, netv1.LabelSubnet: subnet} {
		if len(validation.IsValidLabelValue(name)) == 0 {
			labels[key] = name
		}
	}
	return labels
}
