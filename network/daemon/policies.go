package daemon

import (
	"errors"
	"maps"
	"time"

	"github.com/mnicloud/mnicloud/network/daemon/desired"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// policyRetry is when policies that could not be written are tried again, if nothing changes before.
const policyRetry = 30 * time.Second

// number writes the policies of interfaces and gives them their numbers. An interface whose policy cannot be written is closed,
// and nothing else suffers: what a tenant's rules amount to must not keep a node from its work.
func (p *programmer) number(s desired.State) {
	unwritten := map[uint32]string{}
	for ifindex, policies := range s.Policies {
		nic, ok := s.NICs[ifindex]
		if !ok {
			continue
		}
		var in, out error
		nic.IngressPolicy, in = p.numberOf(policies.Ingress)
		nic.EgressPolicy, out = p.numberOf(policies.Egress)
		s.NICs[ifindex] = nic
		if err := errors.Join(in, out); err != nil {
			unwritten[ifindex] = err.Error()
		}
	}
	if len(unwritten) > 0 && !maps.Equal(unwritten, p.unwritten) {
		p.log.Error("interfaces are closed whose policies cannot be written", "by ifindex", unwritten)
	}
	p.unwritten = unwritten
	if len(unwritten) > 0 && !p.retrying {
		p.retrying = true
		time.AfterFunc(policyRetry, p.retry)
	}
}

func (p *programmer) retry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retrying = false
	p.kick()
}

// closed is how many interfaces are closed because their policies could not be written.
func (p *programmer) closed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.unwritten)
}

func (p *programmer) numberOf(policy *datapath.Policy) (datapath.PolicyID, error) {
	if policy == nil {
		return datapath.PolicyNone, nil
	}
	return p.datapath.Policies.Number(*policy)
}

// policiesOf are the numbers of the policies that interfaces have.
func policiesOf(s desired.State) map[datapath.PolicyID]bool {
	used := map[datapath.PolicyID]bool{}
	for _, nic := range s.NICs {
		used[nic.IngressPolicy], used[nic.EgressPolicy] = true, true
	}
	return used
}
