package controller

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/mnicloud/mnicloud/network/claim"
	"github.com/mnicloud/mnicloud/network/routing"
)

// Config is what the owner of the cloud decides about the network.
type Config struct {
	// InfrastructureCIDR is the range of Pods' infrastructure addresses, the default Subnet's CIDR (198.18.0.0/17).
	InfrastructureCIDR netip.Prefix
	// ReservedCIDRs are ranges that no other Subnet may meet. The infrastructure CIDR is reserved in any case. Nil means
	// routing.Reserved.
	ReservedCIDRs []netip.Prefix
	// Quarantine is how long an infrastructure address (one of the default Subnet's) is not given to anybody after it was given
	// back. It must be longer than a node that counts as alive may be behind. 0 means a minute.
	Quarantine time.Duration
	// PortQuarantine is how long nobody gets ports that were taken from a lost node, unless that node gives them back itself. It must be
	// longer than a flow of the node's can live without a packet. 0 means two hours and a quarter.
	PortQuarantine time.Duration
	// now is the world's clock; nil means time.Now.
	now func() time.Time
	// Workers is how many interfaces (and Pods) are reconciled at once. 0 means 16.
	Workers int
}

const (
	defaultWorkers = 16
	// defaultQuarantine is three times what a node may be behind: one that is not heard of for 20 s is not alive, and its daemon
	// notices a silent connection within 10 s.
	defaultQuarantine = time.Minute
	// defaultPortQuarantine is more than the 8,000 s after which a TCP connection that sends nothing is no more.
	defaultPortQuarantine = 135 * time.Minute
)

// complete checks the configuration and fills in defaults.
func (c Config) complete() (Config, error) {
	infra := c.InfrastructureCIDR
	switch {
	case !infra.IsValid():
		return c, errors.New("network configuration: infrastructure CIDR is missing; set it to a range for Pods such as 198.18.0.0/17")
	case !infra.Addr().Is4():
		return c, fmt.Errorf("network configuration: infrastructure CIDR %s is not IPv4, and IPv6 is not supported yet", infra)
	case infra != infra.Masked():
		return c, fmt.Errorf("network configuration: infrastructure CIDR %s has bits set beyond the prefix length; write %s", infra, infra.Masked())
	case infra.Bits() < claim.MinPrefixLength || infra.Bits() > claim.MaxPrefixLength:
		return c, fmt.Errorf("network configuration: infrastructure CIDR %s must be between /%d and /%d", infra, claim.MinPrefixLength, claim.MaxPrefixLength)
	}
	if c.ReservedCIDRs == nil {
		c.ReservedCIDRs = routing.Reserved()
	}
	for _, p := range c.ReservedCIDRs {
		if !p.IsValid() {
			return c, errors.New("network configuration: one of the reserved CIDRs is not an address range")
		}
	}
	c.ReservedCIDRs = append(slices.Clone(c.ReservedCIDRs), infra)
	if c.Quarantine <= 0 {
		c.Quarantine = defaultQuarantine
	}
	if c.PortQuarantine <= 0 {
		c.PortQuarantine = defaultPortQuarantine
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.Workers <= 0 {
		c.Workers = defaultWorkers
	}
	return c, nil
}

// reservedBy returns the reserved range that the CIDR meets.
func (c Config) reservedBy(cidr netip.Prefix) (netip.Prefix, bool) {
	for _, p := range c.ReservedCIDRs {
		if p.Overlaps(cidr) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}
