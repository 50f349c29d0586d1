package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// finalize lets the Subnet go once no Pod has an interface in it; interfaces without Pods go with it, and so do leases.
func (r *subnetReconciler) finalize(ctx context.Context, subnet *netv1.Subnet) error {
	if !controllerutil.ContainsFinalizer(subnet, netv1.Finalizer) {
		return nil
	}
	nics, err := r.interfacesOf(ctx, subnet)
	if err != nil {
		return err
	}
	if o, wait := await(nics); wait {
		return errors.Join(r.deleteIdle(ctx, nics), r.write(ctx, subnet, subnet.Status.DeepCopy(), o))
	}
	if err := r.releaseLeases(ctx, subnet); err != nil {
		return err
	}
	return finalizer.Remove(ctx, r.client, subnet, netv1.Finalizer)
}

// interfacesOf lists, from the API server, the interfaces that have addresses of the Subnet. Every interface has one of the
// default Subnet's.
func (r *subnetReconciler) interfacesOf(ctx context.Context, subnet *netv1.Subnet) ([]netv1.NetworkInterface, error) {
	var opts []client.ListOption
	if subnet.Name != netv1.DefaultSubnet {
		opts = append(opts, client.MatchingFields{interfaceBySubnet: subnet.Name})
	}
	var list netv1.NetworkInterfaceList
	if err := r.live.List(ctx, &list, opts...); err != nil {
		return nil, fmt.Errorf("list the NetworkInterfaces of Subnet %s: %w", subnet.Name, err)
	}
	return list.Items, nil
}

// await says what a Subnet that is to go waits for.
func await(nics []netv1.NetworkInterface) (o conditions.Result, wait bool) {
	var attached, idle []string
	for i := range nics {
		if pod := nics[i].Spec.Pod; pod != nil {
			attached = append(attached, nics[i].Name+" (Pod "+pod.Namespace+"/"+pod.Name+")")
		} else {
			idle = append(idle, nics[i].Name)
		}
	}
	slices.Sort(attached)
	slices.Sort(idle)
	switch {
	case len(attached) > 0:
		return conditions.Waiting(reasonWaitingForNICs, "the Subnet goes when the Pods with these NetworkInterfaces are deleted: "+nameSome(attached)), true
	case len(idle) > 0:
		return conditions.Progressing(reasonWaitingForNICs, "deleting the NetworkInterfaces without Pods: "+nameSome(idle)), true
	}
	return conditions.Result{}, false
}

// deleteIdle deletes the interfaces that have no Pod, unless one takes them meanwhile.
func (r *subnetReconciler) deleteIdle(ctx context.Context, nics []netv1.NetworkInterface) error {
	var errs []error
	for i := range nics {
		nic := &nics[i]
		if nic.Spec.Pod != nil || !nic.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.client.Delete(ctx, nic, exactly(nic)); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete NetworkInterface %s: %w", nic.Name, err))
		}
	}
	return errors.Join(errs...)
}

// releaseLeases deletes the leases of this Subnet's VNI. Another Subnet of the same name has another VNI.
func (r *subnetReconciler) releaseLeases(ctx context.Context, subnet *netv1.Subnet) error {
	var list netv1.IPLeaseList
	if err := r.live.List(ctx, &list, client.MatchingFields{ipam.FieldSubnet: subnet.Name}); err != nil {
		return fmt.Errorf("list the leases of Subnet %s: %w", subnet.Name, err)
	}
	var errs []error
	for i := range list.Items {
		lease := &list.Items[i]
		if vni, _, err := ipam.ParseLeaseName(lease.Name); err == nil && vni == subnet.Status.VNI {
			errs = append(errs, r.ipam.Delete(ctx, lease)) // nobody can have an address of it again: no quarantine
		}
	}
	return errors.Join(errs...)
}
