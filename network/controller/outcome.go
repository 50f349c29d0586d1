package controller

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

// Reasons of the Ready condition.
const (
	reasonReady             = "Ready"
	reasonWaitingForVPC     = "WaitingForVPC"
	reasonWaitingForSubnet  = "WaitingForSubnet"
	reasonWaitingForSubnets = "WaitingForSubnets"
	reasonWaitingForPod     = "WaitingForPod"
	reasonWaitingForNICs    = "WaitingForNetworkInterfaces"
	reasonAllocating        = "Allocating"
	reasonCIDROverlap       = "CIDROverlap"
	reasonCIDRReserved      = "CIDRReserved"
	reasonCIDRInvalid       = "CIDRInvalid"
	reasonMisconfigured     = "ConfigurationMismatch"
	reasonExhausted         = "AddressesExhausted"
	reasonAddressInUse      = "AddressInUse"
	reasonAddressInvalid    = "AddressInvalid"
	reasonAddressInterface  = "AddressFixed"
	reasonNamespaceRefused  = "NamespaceNotAllowed"
	reasonInterfaceForeign  = "InterfaceOfOtherNamespace"
	reasonInterfaceSubnet   = "InterfaceInOtherSubnet"
	reasonInterfaceInUse    = "InterfaceInUse"
	reasonInterfaceDeleting = "InterfaceDeleting"
	reasonInterfaceName     = "InterfaceNameInvalid"
	reasonSubnetNotFound    = "SubnetNotFound"
	reasonSubnetDeleting    = "SubnetDeleting"
)

// outcome is what a reconcile found out about its object; conditions and phase follow from it.
type outcome struct {
	kind    outcomeKind
	reason  string
	message string
}

type outcomeKind int

const (
	// ready: does what the spec says.
	ready outcomeKind = iota
	// working: being made, by us.
	working
	// waiting: for another object, which the message names.
	waiting
	// stalled: only a change by someone else helps, which the message names.
	stalled
)

// apply writes the outcome into an object's conditions and returns its phase.
func (o outcome) apply(conditions *[]metav1.Condition, object metav1.Object) status.Phase {
	set := func(kind string, value bool) {
		s := metav1.ConditionFalse
		if value {
			s = metav1.ConditionTrue
		}
		meta.SetStatusCondition(conditions, metav1.Condition{
			Type: kind, Status: s, Reason: o.reason, Message: o.message, ObservedGeneration: object.GetGeneration(),
		})
	}
	only := func(kind string, value bool) {
		if value {
			set(kind, true)
		} else {
			meta.RemoveStatusCondition(conditions, kind)
		}
	}
	set(status.ConditionReady, o.kind == ready)
	only(status.ConditionReconciling, o.kind == working || o.kind == waiting)
	only(status.ConditionStalled, o.kind == stalled)
	switch {
	case !object.GetDeletionTimestamp().IsZero():
		return status.Deleting
	case o.kind == ready:
		return status.Ready
	case o.kind == stalled:
		return status.Error
	case o.kind == waiting:
		return status.Pending
	}
	return status.Provisioning
}

// nameSome joins at most five names, and says how many more there are.
func nameSome(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + " and " + itoa(len(names)-most) + " more"
}
