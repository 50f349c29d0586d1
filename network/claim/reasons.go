package claim

// Reasons of an interface's Ready condition, and of refusals.
const (
	ReasonReady             = "Ready"
	ReasonWaitingForVPC     = "WaitingForVPC"
	ReasonWaitingForSubnet  = "WaitingForSubnet"
	ReasonWaitingForPod     = "WaitingForPod"
	ReasonExhausted         = "AddressesExhausted"
	ReasonAddressInUse      = "AddressInUse"
	ReasonAddressInvalid    = "AddressInvalid"
	ReasonAddressInterface  = "AddressFixed"
	ReasonNamespaceRefused  = "NamespaceNotAllowed"
	ReasonInterfaceName     = "InterfaceNameInvalid"
	ReasonSubnetNotFound    = "SubnetNotFound"
	ReasonSubnetDeleting    = "SubnetDeleting"
	ReasonInterfaceForeign  = "InterfaceOfOtherNamespace"
	ReasonInterfaceSubnet   = "InterfaceInOtherSubnet"
	ReasonInterfaceInUse    = "InterfaceInUse"
	ReasonInterfaceDeleting = "InterfaceDeleting"
)
