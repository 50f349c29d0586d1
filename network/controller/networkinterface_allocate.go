package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// allocate leases the interface's addresses and fills in the status. The Subnet's address comes first: an interface that
// gets none holds no infrastructure address either.
func (r *interfaceReconciler) allocate(ctx context.Context, nic *netv1.NetworkInterface, subnet *netv1.Subnet, vpc *netv1.VPC, s *netv1.NetworkInterfaceStatus) (conditions.Result, error) {
	if o, ok := checkNetwork(nic, subnet, vpc); !ok {
		return o, nil
	}
	network, _ := networkOf(subnet)
	want, current, o, ok := wanted(nic, network)
	if !ok {
		return o, nil
	}
	holder := ipam.Holder{Name: nic.Name, UID: nic.UID}
	address, err := r.ipam.Ensure(ctx, network, holder, want, current)
	if lost := new(ipam.InUseError); errors.As(err, &lost) && !want.IsValid() && nic.Spec.Pod == nil {
		// The address was kept for a Pod to come, but the lease was taken away: the interface starts anew.
		address, err = r.ipam.Ensure(ctx, network, holder, want, netip.Addr{})
	}
	if err != nil {
		return asResult(err)
	}
	infra := address
	if subnet.Name != netv1.DefaultSubnet {
		infra, o, err = r.infrastructure(ctx, nic, holder)
		if err != nil || !infra.IsValid() {
			return o, err
		}
	}
	if s.MAC == "" {
		if s.MAC, err = newMAC(); err != nil {
			return conditions.Result{}, err
		}
	}
	s.Address = address.String()
	s.PrefixLength = int32(network.CIDR.Bits())
	s.GatewayAddress = subnet.Status.GatewayAddress
	s.InfrastructureAddress = infra.String()
	s.VNI = subnet.Status.VNI
	s.VPCID = subnet.Status.VPCID
	return conditions.Ready(reasonReady, "the interface has its addresses"), nil
}

// infrastructure leases an address of the default Subnet; when the result says why not, it is not valid.
func (r *interfaceReconciler) infrastructure(ctx context.Context, nic *netv1.NetworkInterface, holder ipam.Holder) (netip.Addr, conditions.Result, error) {
	var home netv1.Subnet
	if err := r.client.Get(ctx, client.ObjectKey{Name: netv1.DefaultSubnet}, &home); client.IgnoreNotFound(err) != nil {
		return netip.Addr{}, conditions.Result{}, fmt.Errorf("read the default Subnet: %w", err)
	}
	network, ok := networkOf(&home)
	if !ok {
		return netip.Addr{}, conditions.Waiting(reasonWaitingForSubnet, "the default Subnet, which gives infrastructure addresses, is not ready yet"), nil
	}
	current, _ := netip.ParseAddr(nic.Status.InfrastructureAddress)
	address, err := r.ipam.Ensure(ctx, network, holder, netip.Addr{}, current)
	if lost := new(ipam.InUseError); errors.As(err, &lost) && nic.Spec.Pod == nil {
		address, err = r.ipam.Ensure(ctx, network, holder, netip.Addr{}, netip.Addr{})
	}
	if err != nil {
		o, err := asResult(err)
		return netip.Addr{}, o, err
	}
	return address, conditions.Result{}, nil
}

// networkOf is what the allocator needs of a Subnet; ok is false while the Subnet is not confirmed.
func networkOf(subnet *netv1.Subnet) (ipam.Network, bool) {
	cidr, ok := parseCIDR(subnet.Spec.CIDR)
	return ipam.Network{Subnet: subnet.Name, VPC: subnet.Spec.VPC, VNI: subnet.Status.VNI, CIDR: cidr}, ok && standingOf(subnet) == confirmed
}

// checkNetwork decides whether the interface may have addresses now. One that has them keeps them.
func checkNetwork(nic *netv1.NetworkInterface, subnet *netv1.Subnet, vpc *netv1.VPC) (o conditions.Result, ok bool) {
	switch {
	case subnet == nil:
		return conditions.Waiting(reasonWaitingForSubnet, "spec.subnet: Subnet "+nic.Spec.Subnet+" does not exist yet"), false
	case standingOf(subnet) != confirmed:
		message := "spec.subnet: Subnet " + nic.Spec.Subnet + " is not ready yet"
		if why := meta.FindStatusCondition(subnet.Status.Conditions, status.ConditionReady); why != nil {
			message += " (" + why.Message + ")"
		}
		return conditions.Waiting(reasonWaitingForSubnet, message), false
	case nic.Status.Address != "":
		return conditions.Result{}, true
	case !subnet.DeletionTimestamp.IsZero():
		return conditions.Failed(reasonSubnetDeleting, "spec.subnet: Subnet "+nic.Spec.Subnet+" is being deleted; use another Subnet"), false
	case nic.Spec.Pod == nil && nic.Status.ReleasedAt != nil:
		return conditions.Waiting(reasonWaitingForPod, "the interface gets an address when a Pod attaches"), false
	case vpc == nil:
		return conditions.Waiting(reasonWaitingForVPC, "VPC "+subnet.Spec.VPC+" of Subnet "+subnet.Name+" does not exist"), false
	}
	if no := checkAccess(nic.Spec.Namespace, subnet, vpc); no != nil {
		return conditions.Failed(no.reason, "spec.namespace: "+no.message), false
	}
	return conditions.Result{}, true
}

// wanted is the address the spec asks for and the one the interface has, both maybe none. A Pod's address does not change
// under it.
func wanted(nic *netv1.NetworkInterface, network ipam.Network) (want, current netip.Addr, o conditions.Result, ok bool) {
	current, _ = netip.ParseAddr(nic.Status.Address)
	if nic.Spec.Address == "" {
		return want, current, o, true
	}
	want, err := ipam.Range{CIDR: network.CIDR}.Check(network.Subnet, nic.Spec.Address)
	if err != nil {
		o, _ = asResult(err)
		return want, current, o, false
	}
	if current.IsValid() && current != want && nic.Spec.Pod != nil {
		return want, current, conditions.Failed(reasonAddressInterface, "spec.address: the interface has "+current.String()+
			" and Pod "+nic.Spec.Pod.Namespace+"/"+nic.Spec.Pod.Name+" uses it; delete the Pod first, or put the address back"), false
	}
	return want, current, o, true
}

// tellPod sends the interface's Pod an event when the interface came to need help or room, or another help than before.
func (r *interfaceReconciler) tellPod(before, after *netv1.NetworkInterface) {
	is, was := trouble(after.Status.Conditions), trouble(before.Status.Conditions)
	if is == nil || after.Spec.Pod == nil || (was != nil && was.Reason == is.Reason) {
		return
	}
	ref := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: after.Spec.Pod.Namespace, Name: after.Spec.Pod.Name, UID: after.Spec.Pod.UID,
	}
	r.events.Eventf(ref, nil, corev1.EventTypeWarning, is.Reason, "AllocateAddress", "%s", is.Message)
}

// trouble is the Ready condition of an interface whose Pod does not start without something that people may have to do; nil
// otherwise.
func trouble(all []metav1.Condition) *metav1.Condition {
	ready := meta.FindStatusCondition(all, status.ConditionReady)
	if ready == nil || (ready.Reason != reasonExhausted && !meta.IsStatusConditionTrue(all, status.ConditionStalled)) {
		return nil
	}
	return ready
}
