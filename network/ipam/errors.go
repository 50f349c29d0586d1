package ipam

import (
	"fmt"
	"net/netip"
)

// ExhaustedError says that every address of a Subnet is leased.
type ExhaustedError struct {
	// Subnet is the Subnet's name.
	Subnet string
	// CIDR is the Subnet's range.
	CIDR netip.Prefix
	// Capacity is how many interfaces the range has room for.
	Capacity uint64
}

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("spec.subnet: all %d addresses of Subnet %s (%s) are in use; delete an interface in it, or use a Subnet with a larger CIDR",
		e.Capacity, e.Subnet, e.CIDR)
}

// InUseError says that the address asked for is leased to another interface.
type InUseError struct {
	// Address is the address asked for.
	Address netip.Addr
	// Subnet is the Subnet's name.
	Subnet string
	// Holder is the name of the NetworkInterface that has the address.
	Holder string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("spec.address: %s of Subnet %s is in use by NetworkInterface %s; ask for another address, or delete that interface",
		e.Address, e.Subnet, e.Holder)
}

// InvalidAddressError says that the address asked for cannot be an interface's.
type InvalidAddressError struct {
	// Address is what was asked for, as written.
	Address string
	// Subnet is the Subnet's name.
	Subnet string
	// CIDR is the Subnet's range.
	CIDR netip.Prefix
	// Problem is what is wrong with the address.
	Problem string
}

func (e *InvalidAddressError) Error() string {
	return fmt.Sprintf("spec.address: %q %s; ask for an address from %s to %s of Subnet %s, or for none",
		e.Address, e.Problem, Range{e.CIDR}.First(), Range{e.CIDR}.Last(), e.Subnet)
}
