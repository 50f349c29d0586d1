package netbackend

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// LabelVirtualMachine on an interface is the name of the VirtualMachine, of the interface's namespace, that has it.
const LabelVirtualMachine = "vm.mnicloud.jp/virtual-machine"

// objectOf is an empty object, and list an empty list, of what is made for a kind.
func objectOf(kind backend.Kind) (object client.Object, list client.ObjectList, err error) {
	switch kind {
	case backend.Vpc:
		return &netv1.VPC{}, &netv1.VPCList{}, nil
	case backend.Subnet:
		return &netv1.Subnet{}, &netv1.SubnetList{}, nil
	case backend.RouteTable:
		return &netv1.RouteTable{}, &netv1.RouteTableList{}, nil
	case backend.SecurityGroup:
		return &netv1.SecurityGroup{}, &netv1.SecurityGroupList{}, nil
	case backend.ExternalIP:
		return &netv1.ExternalIP{}, &netv1.ExternalIPList{}, nil
	case backend.FloatingIP:
		return &netv1.FloatingIP{}, &netv1.FloatingIPList{}, nil
	case backend.NATGateway:
		return &netv1.NATGateway{}, &netv1.NATGatewayList{}, nil
	case backend.VpcPeering:
		return &netv1.VPCPeering{}, &netv1.VPCPeeringList{}, nil
	}
	return nil, nil, fmt.Errorf("the network makes nothing for the kind %q", kind)
}

// Delete implements backend.Backend.
func (b *Backend) Delete(ctx context.Context, kind backend.Kind, uid types.UID) (bool, error) {
	object, _, err := objectOf(kind)
	if err != nil {
		return false, err
	}
	return b.delete(ctx, object, uid)
}

// MadeFor implements backend.Backend.
func (b *Backend) MadeFor(ctx context.Context, kind backend.Kind, name types.NamespacedName) ([]types.UID, error) {
	_, list, err := objectOf(kind)
	if err != nil {
		return nil, err
	}
	return b.madeFor(ctx, list, name)
}

// Watch implements backend.Backend. What no kind is is not watched.
func (b *Backend) Watch(bldr *ctrl.Builder, kind backend.Kind) {
	object, _, err := objectOf(kind)
	if err != nil {
		return
	}
	bldr.Watches(object, handler.EnqueueRequestsFromMapFunc(requestOwner))
	interfaces := func(to handler.MapFunc, matters predicate.Predicate) {
		// An update asks for those before and after.
		bldr.Watches(&netv1.NetworkInterface{}, handler.EnqueueRequestsFromMapFunc(to), builder.WithPredicates(matters))
	}
	switch kind {
	case backend.Subnet:
		interfaces(b.requestSubnetOfInterface, onDelete)
	case backend.SecurityGroup:
		interfaces(b.requestGroupsOfInterface, groupsLeft)
	case backend.RouteTable:
		interfaces(b.requestTablesOfInterface, anotherWorkload)
	case backend.FloatingIP:
		interfaces(b.requestFloatingIPsOfInterface, anotherWorkload)
	}
}

// anotherWorkload lets through interfaces that come or go, or become another workload's.
var anotherWorkload = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero() ||
			!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	},
}

// machineOf is the VirtualMachine, with its namespace, that an interface was made for.
func machineOf(nic *netv1.NetworkInterface) []string {
	if name := nic.Labels[LabelVirtualMachine]; name != "" {
		return []string{nic.Spec.Namespace + "/" + name}
	}
	return nil
}

// requestFloatingIPsOfInterface asks for the tenant's FloatingIPs that lead to the workload of an interface.
func (b *Backend) requestFloatingIPsOfInterface(ctx context.Context, o client.Object) []reconcile.Request {
	nic, ok := o.(*netv1.NetworkInterface)
	if !ok {
		return nil
	}
	var requests []reconcile.Request
	for kind, workloads := range map[vpcv1.FloatingIPTargetType][]string{
		vpcv1.TargetContainers: containerOf(nic), vpcv1.TargetVirtualMachines: machineOf(nic),
	} {
		for _, workload := range workloads {
			namespace, name, _ := strings.Cut(workload, "/")
			var list vpcv1.FloatingIPList
			if err := b.client.List(ctx, &list, client.MatchingFields{floatingByTarget: namespace + "/" + string(kind) + "/" + name}); err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "list the FloatingIPs that lead to a workload", "type", kind, "workload", workload)
			}
			for i := range list.Items {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
	}
	return requests
}
