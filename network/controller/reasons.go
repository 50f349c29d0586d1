package controller

import (
	"strconv"
	"strings"
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
	reasonPlatformRefused   = "PlatformNotAllowed"
	reasonInterfaceForeign  = "InterfaceOfOtherNamespace"
	reasonInterfaceSubnet   = "InterfaceInOtherSubnet"
	reasonInterfaceInUse    = "InterfaceInUse"
	reasonInterfaceDeleting = "InterfaceDeleting"
	reasonInterfaceName     = "InterfaceNameInvalid"
	reasonSubnetNotFound    = "SubnetNotFound"
	reasonSubnetDeleting    = "SubnetDeleting"
	reasonGroupNotFound     = "SecurityGroupNotFound"
	reasonTableNotFound     = "RouteTableNotFound"
	reasonTableForeign      = "RouteTableOfOtherVPC"
	reasonRouteInvalid      = "RouteInvalid"
	reasonPoolNotFound      = "AddressPoolNotFound"
	reasonPeerNotFound      = "BGPPeerNotFound"
	reasonSelectorInvalid   = "NodeSelectorInvalid"
	reasonNoNode            = "NoNodeChosen"
	reasonConnecting        = "Connecting"
	reasonEstablished       = "Established"
	reasonSessionRefused    = "SessionRefused"
)

// nameSome joins at most five names, and says how many more there are.
func nameSome(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + " and " + strconv.Itoa(len(names)-most) + " more"
}
