package daemon

import (
	"maps"
	"slices"

	"github.com/mnicloud/mnicloud/network/daemon/desired"
)

// keepAnswers has the answers of Services looked for at interfaces that had them looked for until now, as far as can be read: their flows outlive a
// Service. It needs to be called before interfaces are written.
func (p *programmer) keepAnswers(s desired.State) {
	for _, ifindex := range slices.Sorted(maps.Keys(s.NICs)) {
		nic := s.NICs[ifindex]
		if !nic.NoServices {
			continue
		}
		before, ok, err := p.datapath.NICs.Get(ifindex)
		if err != nil || ok && !before.NoServices && before.VPCID == nic.VPCID && before.Address == nic.Address {
			nic.NoServices = false
			s.NICs[ifindex] = nic
		}
	}
}
