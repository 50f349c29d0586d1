package controller

import (
	"strconv"
	"strings"

	"github.com/mnicloud/mnicloud/network/claim"
)

// Reasons of the Ready condition.
const (
	reasonReady             = claim.ReasonReady
	reasonWaitingForVPC     = claim.ReasonWaitingForVPC
	reasonWaitingForSubnet  = claim.ReasonWaitingForSubnet
	reasonWaitingForSubnets = "WaitingForSubnets"
	reasonWaitingForPod     = claim.ReasonWaitingForPod
	reasonWaitingForNICs    = "WaitingForNetworkInterfaces"
	reasonAllocating        = "Allocating"
	reasonCIDROverlap       = "CIDROverlap"
	reasonCIDRReserved      = "CIDRReserved"
	reasonCIDRInvalid       = "CIDRInvalid"
	reasonMisconfigured     = "ConfigurationMismatch"
	reasonExhausted         = claim.ReasonExhausted
	reasonAddressInUse      = claim.ReasonAddressInUse
	reasonAddressInvalid    = claim.ReasonAddressInvalid
	reasonAddressInterface  = claim.ReasonAddressInterface
	reasonNamespaceRefused  = claim.ReasonNamespaceRefused
	reasonPlatformRefused   = "PlatformNotAllowed"
	reasonInterfaceForeign  = claim.ReasonInterfaceForeign
	reasonInterfaceSubnet   = claim.ReasonInterfaceSubnet
	reasonInterfaceInUse    = claim.ReasonInterfaceInUse
	reasonInterfaceDeleting = claim.ReasonInterfaceDeleting
	reasonInterfaceName     = claim.ReasonInterfaceName
	reasonSubnetNotFound    = claim.ReasonSubnetNotFound
	reasonSubnetDeleting    = claim.ReasonSubnetDeleting
	reasonGroupNotFound     = "SecurityGroupNotFound"
	reasonTableNotFound     = "RouteTableNotFound"
	reasonTableForeign      = "RouteTableOfOtherVPC"
	reasonRouteInvalid      = "RouteInvalid"
	reasonRouteLoop         = "RouteLoop"
	reasonPoolNotFound      = "AddressPoolNotFound"
	reasonPeerNotFound      = "BGPPeerNotFound"
	reasonSelectorInvalid   = "NodeSelectorInvalid"
	reasonNoNode            = "NoNodeChosen"
	reasonConnecting        = "Connecting"
	reasonEstablished       = "Established"
	reasonSessionRefused    = "SessionRefused"
	reasonPoolNotReady      = "AddressPoolNotReady"
	reasonAddressOutside    = "AddressOutsidePool"
	reasonReleasing         = "Releasing"

	reasonExternalIPNotFound = "ExternalIPNotFound"
	reasonExternalIPNotReady = "ExternalIPNotReady"
	reasonExternalIPInUse    = "ExternalIPInUse"
	reasonNoTarget           = "NoTarget"
	reasonTargetNotFound     = "TargetNotFound"
	reasonTargetNotReady     = "TargetNotReady"
	reasonTargetInvalid      = "TargetInvalid"
	reasonSubnetForeign      = "SubnetOfOtherVPC"
	reasonSubnetServed       = "SubnetServed"
	reasonClaimingPorts      = "ClaimingPorts"
	reasonTranslating        = "Translating"
)

// nameSome joins at most five names, and says how many more there are.
func nameSome(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + " and " + strconv.Itoa(len(names)-most) + " more"
}
