package daemon

import "github.com/mnicloud/mnicloud/network/datapath"

// natWants are the Subnets whose spare block is in use, by VNI, and how many blocks they had then. It is not ready before the maps are
// complete and this process's programs are attached.
func (p *programmer) natWants() (wants map[uint32]int, ready bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.committed {
		return nil, false, nil
	}
	wants, err = p.datapath.NAT.Wants()
	return wants, true, err
}

// collectNAT removes flows of NATGateways that timed out, and of interfaces that are gone. It returns how many each block has.
func (p *programmer) collectNAT() (map[datapath.PortBlock]int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	nics, err := p.datapath.NICs.List()
	if err != nil {
		return nil, err
	}
	there := map[datapath.EndpointKey]bool{}
	for _, nic := range nics {
		there[datapath.EndpointKey{VNI: nic.VNI, Address: nic.Address}] = true
	}
	now, err := datapath.SinceBoot()
	if err != nil {
		return nil, err
	}
	return p.datapath.NAT.Collect(now, func(key datapath.EndpointKey) bool { return there[key] })
}
