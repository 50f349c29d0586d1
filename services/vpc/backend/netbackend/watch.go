package netbackend

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// Indexes of the cache. They carry this package's own domain so that they meet no other controller's in one process.
const (
	byOwner           = "vpc.mnicloud.jp/owner"
	interfaceBySubnet = "vpc.mnicloud.jp/interface-subnet"
	interfaceByGroup  = "vpc.mnicloud.jp/interface-security-group"
	// With the namespace in front.
	interfaceByContainer = "vpc.mnicloud.jp/interface-container"
	interfaceByAddress   = "vpc.mnicloud.jp/interface-address"
	interfaceByMachine   = "vpc.mnicloud.jp/interface-virtual-machine"
	tableByContainer     = "vpc.mnicloud.jp/route-container"
	// floatingByTarget: tenants' FloatingIPs by namespace, type and name of their target.
	floatingByTarget = "vpc.mnicloud.jp/floating-ip-target"
)

// AddIndexes registers what the backend looks things up by.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	owner := func(o client.Object) []string {
		if name, ok := ownerOf(o); ok {
			return []string{name.String()}
		}
		return nil
	}
	for _, index := range []struct {
		object client.Object
		field  string
		values client.IndexerFunc
	}{
		{&netv1.VPC{}, byOwner, owner},
		{&netv1.Subnet{}, byOwner, owner},
		{&netv1.SecurityGroup{}, byOwner, owner},
		{&netv1.RouteTable{}, byOwner, owner},
		{&netv1.ExternalIP{}, byOwner, owner},
		{&netv1.FloatingIP{}, byOwner, owner},
		{&netv1.NATGateway{}, byOwner, owner},
		{&netv1.VPCPeering{}, byOwner, owner},
		{&netv1.NetworkInterface{}, interfaceByMachine, func(o client.Object) []string {
			nic, ok := o.(*netv1.NetworkInterface)
			if !ok {
				return nil
			}
			return machineOf(nic)
		}},
		{&vpcv1.FloatingIP{}, floatingByTarget, func(o client.Object) []string {
			fip, ok := o.(*vpcv1.FloatingIP)
			if !ok {
				return nil
			}
			return []string{fip.Namespace + "/" + string(fip.Spec.Target.Type) + "/" + fip.Spec.Target.Name}
		}},
		{&netv1.NetworkInterface{}, interfaceByContainer, func(o client.Object) []string {
			nic, ok := o.(*netv1.NetworkInterface)
			if !ok {
				return nil
			}
			return containerOf(nic)
		}},
		{&netv1.NetworkInterface{}, interfaceByAddress, func(o client.Object) []string {
			nic, ok := o.(*netv1.NetworkInterface)
			if !ok {
				return nil
			}
			return []string{nic.Spec.Namespace + "/" + nic.Status.Address}
		}},
		{&vpcv1.RouteTable{}, tableByContainer, func(o client.Object) []string {
			table, ok := o.(*vpcv1.RouteTable)
			if !ok {
				return nil
			}
			return containersOf(table)
		}},
		{&netv1.NetworkInterface{}, interfaceByGroup, func(o client.Object) []string {
			nic, ok := o.(*netv1.NetworkInterface)
			if !ok {
				return nil
			}
			return nic.Spec.SecurityGroups
		}},
		{&netv1.NetworkInterface{}, interfaceBySubnet, func(o client.Object) []string {
			nic, ok := o.(*netv1.NetworkInterface)
			if !ok {
				return nil
			}
			return []string{nic.Spec.Subnet}
		}},
	} {
		if err := indexer.IndexField(ctx, index.object, index.field, index.values); err != nil {
			return fmt.Errorf("index %T by %s: %w", index.object, index.field, err)
		}
	}
	return nil
}

// ownerOf is the tenant's object that the network's object was made for; ok is false when a tenant's it is not.
func ownerOf(o client.Object) (name types.NamespacedName, ok bool) {
	labels := o.GetLabels()
	name = types.NamespacedName{Namespace: labels[LabelNamespace], Name: labels[LabelName]}
	return name, name.Namespace != "" && name.Name != ""
}

// madeFor lists what was made for the tenant's object of that name, of the list's kind: each is named by the UID of the object
// it was made for. The list is filled from the cache.
func (b *Backend) madeFor(ctx context.Context, list client.ObjectList, name types.NamespacedName) ([]types.UID, error) {
	if err := b.client.List(ctx, list, client.MatchingFields{byOwner: name.String()}); err != nil {
		return nil, fmt.Errorf("list what was made for %s: %w", name, err)
	}
	uids := make([]types.UID, 0, meta.LenList(list))
	err := meta.EachListItem(list, func(o runtime.Object) error {
		object, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		uids = append(uids, types.UID(object.GetName()))
		return nil
	})
	return uids, err
}

func requestOwner(_ context.Context, o client.Object) []reconcile.Request {
	name, ok := ownerOf(o)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: name}}
}

// requestSubnetOfInterface asks for the tenant's Subnet that an interface was in: it may wait for the interface to go.
func (b *Backend) requestSubnetOfInterface(ctx context.Context, o client.Object) []reconcile.Request {
	nic, ok := o.(*netv1.NetworkInterface)
	if !ok {
		return nil
	}
	var subnet netv1.Subnet
	if err := b.client.Get(ctx, client.ObjectKey{Name: nic.Spec.Subnet}, &subnet); err != nil {
		if client.IgnoreNotFound(err) != nil {
			ctrl.LoggerFrom(ctx).Error(err, "read the Subnet of an interface", "interface", nic.Name)
		}
		return nil
	}
	return requestOwner(ctx, &subnet)
}

// onDelete lets only deletions through.
var onDelete = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
}
