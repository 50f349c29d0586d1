package daemon

import (
	"errors"

	"github.com/mnicloud/mnicloud/network/daemon/desired"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// number writes the policies of interfaces and gives them their numbers. An interface whose policy cannot be written is closed.
func (p *programmer) number(s desired.State) error {
	var errs []error
	number := func(policy *datapath.Policy) datapath.PolicyID {
		if policy == nil {
			return datapath.PolicyNone
		}
		id, err := p.datapath.Policies.Number(*policy)
		errs = append(errs, err)
		return id
	}
	for ifindex, policies := range s.Policies {
		nic, ok := s.NICs[ifindex]
		if !ok {
			continue
		}
		nic.IngressPolicy, nic.EgressPolicy = number(policies.Ingress), number(policies.Egress)
		s.NICs[ifindex] = nic
	}
	return errors.Join(errs...)
}

// policiesOf are the numbers of the policies that interfaces have.
func policiesOf(s desired.State) map[datapath.PolicyID]bool {
	used := map[datapath.PolicyID]bool{}
	for _, nic := range s.NICs {
		used[nic.IngressPolicy], used[nic.EgressPolicy] = true, true
	}
	return used
}
