package ipam

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ExternalVNI stands for the VNI in the names of external addresses' leases: it is no Subnet's.
const ExternalVNI uint32 = 0

// LeaseName is the name of the IPLease of an address: "1001.10.0.0.5". Different (VNI, address) pairs have different names.
func LeaseName(vni uint32, address netip.Addr) string {
	return strconv.FormatUint(uint64(vni), 10) + "." + address.String()
}

// ParseLeaseName is the inverse of LeaseName.
func ParseLeaseName(name string) (vni uint32, address netip.Addr, err error) {
	number, rest, _ := strings.Cut(name, ".")
	n, err := strconv.ParseUint(number, 10, 24)
	if err != nil {
		return 0, netip.Addr{}, fmt.Errorf("IPLease %q: the name does not start with a VNI: %w", name, err)
	}
	address, err = netip.ParseAddr(rest)
	if err != nil {
		return 0, netip.Addr{}, fmt.Errorf("IPLease %q: the name does not end with an address: %w", name, err)
	}
	return uint32(n), address, nil
}
