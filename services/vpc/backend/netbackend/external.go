package netbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/apply"
	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// noObject begins the name of something that does not exist: a name that no object can have. What names it waits, and is not as if it
// named nothing.
const noObject = "missing/"

// EnsureExternalIP implements backend.Backend.
func (b *Backend) EnsureExternalIP(ctx context.Context, eip *vpcv1.ExternalIP) (conditions.Result, error) {
	live := &netv1.ExternalIP{}
	desired := &netv1.ExternalIP{ObjectMeta: metadata(eip), Spec: netv1.ExternalIPSpec{Pool: eip.Spec.ClassName, Address: eip.Spec.Address}}
	if desired.Spec.Pool == "" {
		desired.Spec.Pool = netv1.DefaultAddressPool
	}
	if result, err := b.project(ctx, "ExternalIP", eip, live, desired, func() bool { return true }); err != nil || result != nil {
		return orNone(result), err
	}
	eip.Status.Address, eip.Status.UsedBy = live.Status.Address, nil
	if user := live.Status.UsedBy; user != nil {
		name, err := b.nameOfUser(ctx, user)
		if err != nil {
			return conditions.Result{}, err
		}
		eip.Status.UsedBy = &vpcv1.ExternalIPUser{Kind: user.Kind, Name: name}
	}
	return told("the ExternalIP", live, live.Status.Conditions, strings.NewReplacer(
		"spec.pool: AddressPool "+desired.Spec.Pool+" does not exist; the cloud's owner can create it, or", "spec.className: there is no pool "+desired.Spec.Pool+";",
		"spec.pool: ", "spec.className: ", "AddressPool ", "pool ", string(eip.UID), eip.Name,
	)), nil
}

// nameOfUser is what the tenant calls who has an address.
func (b *Backend) nameOfUser(ctx context.Context, user *netv1.ExternalIPUser) (string, error) {
	var object client.Object = &netv1.FloatingIP{}
	if user.Kind == netv1.KindNATGateway {
		object = &netv1.NATGateway{}
	}
	err := b.client.Get(ctx, client.ObjectKey{Name: user.Name}, object)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read the network's %s %s: %w", user.Kind, user.Name, err)
	}
	if owner, ok := ownerOf(object); ok && err == nil {
		return owner.Name, nil
	}
	return user.Name, nil
}

// UserOfExternalIP implements backend.Backend.
func (b *Backend) UserOfExternalIP(ctx context.Context, uid types.UID) (string, error) {
	var eip netv1.ExternalIP
	if err := b.client.Get(ctx, client.ObjectKey{Name: string(uid)}, &eip); err != nil || eip.Status.UsedBy == nil {
		return "", client.IgnoreNotFound(err)
	}
	name, err := b.nameOfUser(ctx, eip.Status.UsedBy)
	return eip.Status.UsedBy.Kind + " " + name, err
}

// EnsureFloatingIP implements backend.Backend.
func (b *Backend) EnsureFloatingIP(ctx context.Context, fip *vpcv1.FloatingIP, eip types.UID) (conditions.Result, error) {
	target, nic, err := b.target(ctx, fip)
	if err != nil {
		return conditions.Result{}, err
	}
	live := &netv1.FloatingIP{}
	desired := &netv1.FloatingIP{ObjectMeta: metadata(fip), Spec: netv1.FloatingIPSpec{ExternalIP: string(eip), NetworkInterface: nic}}
	result, err := b.project(ctx, "FloatingIP", fip, live, desired, func() bool { return live.Spec.ExternalIP == string(eip) })
	if err != nil || result != nil {
		return orNone(result), err
	}
	fip.Status.ExternalAddress, fip.Status.Address = live.Status.ExternalAddress, live.Status.Address
	names, err := b.namesIn(ctx, fip.Namespace)
	if err != nil {
		return conditions.Result{}, err
	}
	return told("the FloatingIP", live, live.Status.Conditions, strings.NewReplacer(append(names,
		"spec.networkInterface: NetworkInterface "+nic+" does not exist yet; create it, or name another", "spec.target: "+missing(target),
		"spec.networkInterface", "spec.target", "NetworkInterface "+nic, target, "interface", "workload")...)), nil
}

// missing says of a target that does not exist what can be done.
func missing(target string) string {
	if strings.HasPrefix(target, "VirtualMachine ") {
		return target + " does not exist, as there is no service of virtual machines yet; the FloatingIP waits for it, or name a Container"
	}
	return target + " does not exist; create it, or name another"
}

// target is what the tenant calls a FloatingIP's target, and the name of the interface that it has.
func (b *Backend) target(ctx context.Context, fip *vpcv1.FloatingIP) (target, nic string, err error) {
	target, index := "Container "+fip.Spec.Target.Name, interfaceByContainer
	if fip.Spec.Target.Type == vpcv1.TargetVirtualMachines {
		target, index = "VirtualMachine "+fip.Spec.Target.Name, interfaceByMachine
	}
	nics, err := b.interfaces(ctx, index, fip.Namespace, fip.Spec.Target.Name)
	if err != nil || len(nics) == 0 {
		return target, noObject + fip.Spec.Target.Name, err
	}
	return target, nics[0].Name, nil
}

// EnsureNATGateway implements backend.Backend.
func (b *Backend) EnsureNATGateway(ctx context.Context, vpc *vpcv1.Vpc, nat *vpcv1.NATGateway, named backend.Named) (conditions.Result, error) {
	live := &netv1.NATGateway{}
	spec := netv1.NATGatewaySpec{VPC: string(vpc.UID), Subnets: uidsOf(nat.Spec.Subnets, named.Subnets), ExternalIPs: uidsOf(nat.Spec.ExternalIPs, named.ExternalIPs)}
	desired := &netv1.NATGateway{ObjectMeta: metadata(nat), Spec: spec}
	result, err := b.project(ctx, "NATGateway", nat, live, desired, func() bool { return live.Spec.VPC == spec.VPC })
	if err != nil || result != nil {
		return orNone(result), err
	}
	nat.Status.Addresses, nat.Status.Subnets = live.Status.Addresses, nil
	for _, uid := range live.Status.Subnets {
		var subnet netv1.Subnet
		if err := b.client.Get(ctx, client.ObjectKey{Name: uid}, &subnet); client.IgnoreNotFound(err) != nil {
			return conditions.Result{}, fmt.Errorf("read the network's Subnet: %w", err)
		}
		if owner, ok := ownerOf(&subnet); ok {
			nat.Status.Subnets = append(nat.Status.Subnets, owner.Name)
		}
	}
	slices.Sort(nat.Status.Subnets)
	names, err := b.namesIn(ctx, nat.Namespace)
	if err != nil {
		return conditions.Result{}, err
	}
	return told("the NATGateway", live, live.Status.Conditions, strings.NewReplacer(append(names, "VPC "+spec.VPC, "Vpc "+vpc.Name, noObject, "")...)), nil
}

// uidsOf are the network's names of what a tenant names.
func uidsOf(names []string, uids map[string]types.UID) []string {
	var out []string
	for _, name := range names {
		if uid, ok := uids[name]; ok {
			out = append(out, string(uid))
		} else {
			out = append(out, noObject+name)
		}
	}
	return out
}

// namesIn are pairs of the network's and the tenant's names of what messages about external addresses may name.
func (b *Backend) namesIn(ctx context.Context, namespace string) ([]string, error) {
	var names []string
	for _, list := range []client.ObjectList{&vpcv1.ExternalIPList{}, &vpcv1.FloatingIPList{}, &vpcv1.NATGatewayList{}, &vpcv1.SubnetList{}} {
		if err := b.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list the objects of namespace %s: %w", namespace, err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			object, err := meta.Accessor(o)
			if err != nil {
				return nil, err
			}
			names = append(names, string(object.GetUID()), object.GetName())
		}
	}
	return names, nil
}

// project makes desired true for a tenant's object, reading what is there into live. The result is nil when that is the object that
// should be there. What cannot be changed into it, as same says, is deleted and then made anew.
func (b *Backend) project(ctx context.Context, kind string, owner, live, desired client.Object, same func() bool) (*conditions.Result, error) {
	err := b.client.Get(ctx, client.ObjectKeyFromObject(desired), live)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the network's %s: %w", kind, err)
	}
	again := remaking(kind, owner.GetName())
	if live.GetDeletionTimestamp() != nil {
		return &again, nil
	}
	if err == nil && !same() {
		if _, err := b.delete(ctx, live, types.UID(live.GetName())); err != nil {
			return nil, err
		}
		return &again, nil
	}
	if err := apply.Object(ctx, b.client, FieldOwner, live, desired); err != nil {
		if apierrors.IsConflict(err) {
			return nil, err
		}
		result, err := refused(err)
		return &result, err
	}
	return nil, nil
}

func orNone(r *conditions.Result) conditions.Result {
	if r == nil {
		return conditions.Result{}
	}
	return *r
}

// told tells a tenant how the network's object is, waits as waits. names replaces the network's names by the tenant's.
func told(what string, live metav1.Object, conds []metav1.Condition, names *strings.Replacer) conditions.Result {
	ready := readyOf(conds)
	if live.GetResourceVersion() != "" && ready != nil && ready.ObservedGeneration == live.GetGeneration() && ready.Status != metav1.ConditionTrue &&
		!meta.IsStatusConditionTrue(conds, status.ConditionStalled) && !meta.IsStatusConditionTrue(conds, status.ConditionReconciling) {
		return conditions.Waiting(ready.Reason, names.Replace(ready.Message))
	}
	return resultOf(what, live, conds, names)
}
