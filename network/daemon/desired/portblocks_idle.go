package desired

import (
	"time"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// IdlePortBlocks remembers since when blocks have had no flow. Its zero value is ready to use.
type IdlePortBlocks struct {
	since map[string]time.Time
	// draining are the names of blocks that begin nothing new; those without flows by the next look go back.
	draining map[string]bool
}

// Draining are the names of blocks with which nothing new is begun.
func (i *IdlePortBlocks) Draining() map[string]bool { return i.draining }

// Look says which of this node's blocks go back, given how many flows each has. A gateway keeps one idle block, the spare one, and those that
// had flows within the time keep. A block first begins nothing new; if it still has no flow at the next look, none can come any more.
func (i *IdlePortBlocks) Look(in Input, live map[datapath.PortBlock]int, now time.Time, keep time.Duration) (back []*netv1.PortBlock) {
	since, draining, idle := map[string]time.Time{}, map[string]bool{}, map[string]int{}
	for _, b := range OwnPortBlocks(in) {
		block, ok := portBlockOf(b)
		if !ok || live[block] > 0 || in.GivenBack[b.Name] {
			continue
		}
		if i.draining[b.Name] {
			back = append(back, b)
			continue
		}
		since[b.Name] = now
		if at, known := i.since[b.Name]; known {
			since[b.Name] = at
		}
		idle[b.Spec.NATGateway]++
		draining[b.Name] = idle[b.Spec.NATGateway] > 1 && now.Sub(since[b.Name]) >= keep // the oldest idle one is the spare
	}
	for name, drains := range draining {
		if !drains {
			delete(draining, name)
		}
	}
	i.since, i.draining = since, draining
	return back
}
