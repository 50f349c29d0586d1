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

// collectNAT removes flows of NATGateways that timed out.
func (p *programmer) collectNAT() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, err := datapath.SinceBoot()
	if err != nil {
		return err
	}
	_, err = p.datapath.NAT.Collect(now)
	return err
}
