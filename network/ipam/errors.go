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
	// Pool is the AddressPool's name, for external addresses.
	Pool string
	// Capacity is how many interfaces the range has room for.
	Capacity uint64
	// Quarantine is how long an address stays unused after it was given back.
	Quarantine time.Duration
}

func (e *ExhaustedError) Error() string {
	if e.Pool != "" {
		return fmt.Sprintf("all %d addresses of AddressPool %s are in use, or were given back less than %s ago; wait, delete an ExternalIP, or give the pool another range",
			e.Capacity, e.Pool, e.Quarantine)
	}
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
	// Pool is the AddressPool's name, for an external address.
	Pool string
	// Holder is the name of the NetworkInterface (or ExternalIP) that has the address; empty when it was just given back.
	Holder string
}

func (e *InUseError) Error() string {
	if e.Pool != "" && e.Holder != "" {
		// Whose it is is nobody else's business: the holder may be another tenant's.
		return fmt.Sprintf("spec.address: %s of AddressPool %s is another ExternalIP's; make a new ExternalIP that asks for another address, or for none", e.Address, e.Pool)
	}
	if e.Pool != "" {
		return fmt.Sprintf("spec.address: %s of AddressPool %s was given back just now and can be had again soon; wait, or make a new ExternalIP that asks for another address", e.Address, e.Pool)
	}
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
