package daemon

import (
	"errors"
	"maps"
	"slices"
	"time"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/daemon/desired"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// policyRetry is when policies that could not be written are tried again, if nothing changes before.
const policyRetry = 30 * time.Second

// policyShare is how many entries of each of the policies' two tables the interfaces of one VPC may take on a node: a sixteenth, and as many as
// one policy may have. While rules change it may be twice that for a moment.
const policyShare = datapath.MaxPolicyPeers

// number writes the policies of interfaces and gives them their numbers. An interface whose policy cannot be written is closed,
// and nothing else suffers: what a tenant's rules amount to must not keep a node from its work.
func (p *programmer) number(s desired.State) {
	unwritten := map[uint32]string{}
	rooms := map[uint32]*datapath.PolicyRoom{netv1.DefaultVPCID: nil} // what ordinary Pods have is the owner's to say
	for _, ifindex := range slices.Sorted(maps.Keys(s.Policies)) {    // who was there first has the room
		policies := s.Policies[ifindex]
		nic, ok := s.NICs[ifindex]
		if !ok {
			continue
		}
		if _, known := rooms[nic.VPCID]; !known {
			rooms[nic.VPCID] = &datapath.PolicyRoom{Peers: policyShare, Rules: policyShare}
		}
		var in, out error
		nic.IngressPolicy, in = p.numberOf(policies.Ingress, rooms[nic.VPCID])
		nic.EgressPolicy, out = p.numberOf(policies.Egress, rooms[nic.VPCID])
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

func (p *programmer) numberOf(policy *datapath.Policy, room *datapath.PolicyRoom) (datapath.PolicyID, error) {
	if policy == nil {
		return datapath.PolicyNone, nil
	}
	return p.datapath.Policies.NumberWithin(*policy, room)
}

// policiesOf are the numbers of the policies that interfaces have.
func policiesOf(s desired.State) map[datapath.PolicyID]bool {
	used := map[datapath.PolicyID]bool{}
	for _, nic := range s.NICs {
		used[nic.IngressPolicy], used[nic.EgressPolicy] = true, true
	}
	return used
}
