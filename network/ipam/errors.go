package ipam

import (
	"fmt"
	"net/netip"
	"time"
)

// ExhaustedError says that every address of a Subnet is leased.
type ExhaustedError struct {
	// Subnet is the Subnet's name.
	Subnet string
	// CIDR is the Subnet's range.
	CIDR netip.Prefix
	// Capacity is how many interfaces the range has room for.
	Capacity uint64
	// Quarantine is how long an address stays unused after it was given back.
	Quarantine time.Duration
}

func (e *ExhaustedError) Error() string {
	if e.Quarantine > 0 {
		return fmt.Sprintf("all %d addresses of Subnet %s (%s) are in use, or were given back less than %s ago; wait, delete Pods, or give the cloud a larger range",
			e.Capacity, e.Subnet, e.CIDR, e.Quarantine)
	}
	return fmt.Sprintf("spec.subnet: all %d addresses of Subnet %s (%s) are in use; delete an interface in it, or use a Subnet with a larger CIDR",
		e.Capacity, e.Subnet, e.CIDR)
}

// InUseError says that the address asked for is leased to another interface.
type InUseError struct {
	// Address is the address asked for.
	Address netip.Addr
	// Subnet is the Subnet's name.
	Subnet string
	// Holder is the name of the NetworkInterface that has the address; empty when it was just given back.
	Holder string
}

func (e *InUseError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("spec.address: %s of Subnet %s was given back just now and can be had again soon; wait, or ask for another address",
			e.Address, e.Subnet)
	}
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
