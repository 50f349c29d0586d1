package inspect

import (
	"errors"
	"slices"
	"time"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// Status is the network in short.
type Status struct {
	Nodes []NodeStatus `json:"nodes"`
	VPCs  []VPCStatus  `json:"vpcs"`
}

// NodeStatus is one member of the network.
type NodeStatus struct {
	Node    string `json:"node"`
	Address string `json:"address,omitempty"`
	// Attached is how the programs are: tcx or clsact; empty when none are.
	Attached string `json:"attached,omitempty"`
	// Programs is the kernel's digest of them: another one is another version.
	Programs string `json:"programs,omitempty"`
	// LoadedSecondsAgo is how long ago they were loaded.
	LoadedSecondsAgo int64 `json:"loadedSecondsAgo,omitempty"`
	Interfaces       int   `json:"interfaces"`
	// Members is how many other members' VXLAN is accepted.
	Members int `json:"members"`
	// DeliveredPackets is what the interfaces there were given, DroppedPackets what was dropped, and UnexpectedPackets the drops
	// among those that healthy traffic does not meet.
	DeliveredPackets  uint64      `json:"deliveredPackets"`
	DroppedPackets    uint64      `json:"droppedPackets"`
	UnexpectedPackets uint64      `json:"unexpectedPackets"`
	Maps              []MapStatus `json:"maps"`
	// Error is why something of this is not known.
	Error string `json:"error,omitempty"`
}

// MapStatus is how full a map is.
type MapStatus struct {
	Map     string `json:"map"`
	Entries int    `json:"entries"`
	Max     int    `json:"max"`
}

// Percent is how full it is.
func (m MapStatus) Percent() float64 { return 100 * float64(m.Entries) / float64(m.Max) }

// Fullest is the map with the least room.
func (n NodeStatus) Fullest() MapStatus {
	if len(n.Maps) == 0 {
		return MapStatus{Max: 1}
	}
	return slices.MaxFunc(n.Maps, func(a, b MapStatus) int { return int(1000 * (a.Percent() - b.Percent())) })
}

// VPCStatus is one VPC.
type VPCStatus struct {
	VPC        string `json:"vpc"`
	ID         uint32 `json:"id"`
	Subnets    int    `json:"subnets"`
	Interfaces int    `json:"interfaces"`
}

// Status looks at every member and VPC. What cannot be seen of a member is in its Error.
func (n *Network) Status() Status {
	s := Status{VPCs: n.Objects.vpcStatus()}
	for _, m := range n.Members {
		node := NodeStatus{Node: m.Name}
		if err := errors.Join(node.readMaps(m), node.readAttached(m)); err != nil {
			node.Error = err.Error()
		}
		s.Nodes = append(s.Nodes, node)
	}
	return s
}

func (n *NodeStatus) readMaps(m Member) error {
	d, err := m.open()
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // it only closes files
	nics, nicsErr := d.NICs.List()
	endpoints, endpointsErr := d.Endpoints.List()
	members, membersErr := d.Members.List()
	drops, dropsErr := d.Drops.List()
	deliveries, deliveriesErr := d.Deliveries.List()
	fills, fillsErr := d.Fill()
	n.Interfaces, n.Members = len(nics), len(members)
	if address := hostAddress(endpoints); address.IsValid() {
		n.Address = address.String()
	}
	for key, count := range drops {
		n.DroppedPackets += count.Packets
		if !key.Reason.Expected() {
			n.UnexpectedPackets += count.Packets
		}
	}
	for _, count := range deliveries {
		n.DeliveredPackets += count.Packets
	}
	for name, fill := range fills {
		n.Maps = append(n.Maps, MapStatus{Map: name, Entries: fill.Entries, Max: fill.Max})
	}
	byNames(n.Maps, func(m MapStatus) []string { return []string{m.Map} })
	return errors.Join(nicsErr, endpointsErr, membersErr, dropsErr, deliveriesErr, fillsErr)
}

func (n *NodeStatus) readAttached(m Member) error {
	return m.in(func() error {
		attached, err := datapath.FindAttached(m.PinPath)
		n.Attached, n.Programs, n.LoadedSecondsAgo = string(attached.Mode), attached.Tag, int64(attached.Age/time.Second)
		return err
	})
}

func (o *Objects) vpcStatus() []VPCStatus {
	byID := map[uint32]*VPCStatus{}
	status := func(id uint32) *VPCStatus {
		if byID[id] == nil {
			byID[id] = &VPCStatus{VPC: o.vpcName(id), ID: id}
		}
		return byID[id]
	}
	for i := range o.vpcs {
		if id := o.vpcs[i].Status.ID; id != 0 {
			status(id)
		}
	}
	for i := range o.subnets {
		if id := o.subnets[i].Status.VPCID; id != 0 {
			status(id).Subnets++
		}
	}
	for i := range o.interfaces {
		if attached(&o.interfaces[i]) {
			status(o.interfaces[i].Status.VPCID).Interfaces++
		}
	}
	rows := []VPCStatus{}
	for _, s := range byID {
		rows = append(rows, *s)
	}
	byNames(rows, func(v VPCStatus) []string { return []string{v.VPC} })
	return rows
}

// attached tells whether an interface is a Pod's and has its addresses.
func attached(nic *netv1.NetworkInterface) bool { return nic.Spec.Pod != nil && nic.Status.VPCID != 0 }
