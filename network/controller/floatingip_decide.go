package controller

import (
	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// binding is what a FloatingIP's status tells nodes: nothing, or everything but the node, which may be missing.
type binding struct {
	external string
	vpcID    uint32
	vni      uint32
	address  string
	node     string
}

// place is where an interface is in the datapath.
type place struct {
	vni     uint32
	address string
}

func (b binding) target() place { return place{b.vni, b.address} }

func bindingOf(fip *netv1.FloatingIP) binding {
	s := &fip.Status
	return binding{s.ExternalAddress, s.VPCID, s.VNI, s.Address, s.Node}
}

// bind decides what a FloatingIP leads to, but for others that name the same interface. eip and nic are nil when there are none.
func bind(fip *netv1.FloatingIP, eip *netv1.ExternalIP, nic *netv1.NetworkInterface) (binding, conditions.Result) {
	if wait, ok := checkExternalIP("spec.externalIP", netv1.KindFloatingIP, fip.Name, fip.Spec.ExternalIP, eip); !ok {
		return binding{}, wait
	}
	name := fip.Spec.NetworkInterface
	switch {
	case name == "":
		return binding{}, conditions.Waiting(reasonNoTarget, "spec.networkInterface names no interface; what is sent to "+eip.Status.Address+" drops until it does")
	case nic == nil:
		return binding{}, conditions.Waiting(reasonTargetNotFound, "spec.networkInterface: NetworkInterface "+name+" does not exist yet; create it, or name another")
	case nic.Spec.Subnet == netv1.DefaultSubnet:
		return binding{}, conditions.Failed(reasonTargetInvalid, "spec.networkInterface: NetworkInterface "+name+" is in the default Subnet, whose Pods have no external addresses; name one in a VPC's Subnet")
	case !nic.DeletionTimestamp.IsZero():
		return binding{}, conditions.Waiting(reasonTargetNotFound, "spec.networkInterface: NetworkInterface "+name+" is being deleted; name another")
	case nic.Status.Address == "" || nic.Status.VNI == 0 || nic.Status.VPCID == 0:
		return binding{}, conditions.Waiting(reasonTargetNotReady, "spec.networkInterface: NetworkInterface "+name+" has no address yet")
	}
	bound := binding{eip.Status.Address, nic.Status.VPCID, nic.Status.VNI, nic.Status.Address, nic.Spec.Node}
	if nic.Spec.Node == "" {
		return bound, conditions.Waiting(reasonTargetNotReady, "spec.networkInterface: NetworkInterface "+name+" is attached on no node; what is sent to "+eip.Status.Address+" drops until it is")
	}
	return bound, conditions.Ready(reasonReady, "the external address leads to the interface")
}

// checkExternalIP says what an object that names an ExternalIP waits for; ok is true when it has its address. eip is nil when there is
// none of the name. A shared one is never said to be had: that is natGatewayReconciler.takes'.
func checkExternalIP(field, kind, user, name string, eip *netv1.ExternalIP) (wait conditions.Result, ok bool) {
	switch {
	case eip == nil:
		return conditions.Waiting(reasonExternalIPNotFound, field+": ExternalIP "+name+" does not exist yet; create it"), false
	case eip.Spec.Shared && kind != netv1.KindNATGateway:
		return conditions.Waiting(reasonExternalIPInUse, field+": ExternalIP "+name+" is shared by NATGateways; name another"), false
	case !eip.Spec.Shared && uses(eip, kind, user):
		return conditions.Result{}, true
	case eip.Status.UsedBy != nil && !eip.Spec.Shared:
		message := field + ": ExternalIP " + name + " is " + eip.Status.UsedBy.Kind + " " + eip.Status.UsedBy.Name + "'s; this " + kind + " waits until that one is deleted"
		if eip.Status.UsedBy.Kind == netv1.KindNATGateway {
			message += " and no node, not even a lost one, can translate for it any more; or name another ExternalIP"
		}
		return conditions.Waiting(reasonExternalIPInUse, message), false
	case !eip.DeletionTimestamp.IsZero():
		return conditions.Waiting(reasonExternalIPNotReady, field+": ExternalIP "+name+" is being deleted; delete this "+kind+" too"), false
	case eip.Status.Address == "":
		message := field + ": ExternalIP " + name + " has no address yet"
		if why := conditions.Message(eip.Status.Conditions); why != "" {
			message += " (" + why + ")"
		}
		return conditions.Waiting(reasonExternalIPNotReady, message), false
	}
	return conditions.Progressing(reasonExternalIPNotReady, field+": ExternalIP "+name+" has its address; it is given to this "+kind+" next"), false
}
