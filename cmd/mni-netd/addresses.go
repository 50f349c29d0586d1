package main

import (
	"fmt"
	"net/netip"
	"strings"
)

// addresses is a flag that takes IPv4 addresses separated by commas.
type addresses []netip.Addr

// String implements pflag.Value.
func (a *addresses) String() string {
	all := make([]string, 0, len(*a))
	for _, address := range *a {
		all = append(all, address.String())
	}
	return strings.Join(all, ",")
}

// Set implements pflag.Value.
func (a *addresses) Set(s string) error {
	*a = nil
	for item := range strings.SplitSeq(s, ",") {
		address, err := netip.ParseAddr(strings.TrimSpace(item))
		if err != nil || !address.Is4() {
			return fmt.Errorf("%q is not an IPv4 address", item)
		}
		*a = append(*a, address)
	}
	return nil
}

// Type implements pflag.Value.
func (a *addresses) Type() string { return "addresses" }

// ranges is a flag that may be repeated, each time with a range.
type ranges []netip.Prefix

// String implements pflag.Value.
func (r *ranges) String() string {
	all := make([]string, 0, len(*r))
	for _, prefix := range *r {
		all = append(all, prefix.String())
	}
	return strings.Join(all, ",")
}

// Set implements pflag.Value.
func (r *ranges) Set(s string) error {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return fmt.Errorf("%q is not a range such as 192.0.2.0/24", s)
	}
	*r = append(*r, prefix)
	return nil
}

// Type implements pflag.Value.
func (r *ranges) Type() string { return "range" }
