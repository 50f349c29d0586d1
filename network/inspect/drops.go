package inspect

import (
	"errors"

	"github.com/vishvananda/netlink"

	"github.com/mnicloud/mnicloud/network/datapath"
)

// Filter chooses among what interfaces have. Empty fields choose everything.
type Filter struct {
	Node, VPC, Namespace, Pod string
}

// Owner is an interface of a node and whose it is.
type Owner struct {
	Node   string `json:"node"`
	VPC    string `json:"vpc,omitempty"`
	Subnet string `json:"subnet,omitempty"`
	// Interface is the NetworkInterface's name; host, vxlan, uplink or gone where it is none.
	Interface string `json:"interface"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Address   string `json:"address,omitempty"`
}

// Name is how people know the interface: by its Pod where it has one.
func (o Owner) Name() string {
	if o.Pod != "" {
		return o.Namespace + "/" + o.Pod
	}
	return o.Interface
}

// Drop is what was dropped at an interface for one reason.
type Drop struct {
	Owner
	Reason  string `json:"reason"`
	Meaning string `json:"meaning"`
	// Remedy is what to do; empty for what healthy traffic meets too.
	Remedy   string `json:"remedy,omitempty"`
	Expected bool   `json:"expected"`
	Packets  uint64 `json:"packets"`
	Bytes    uint64 `json:"bytes"`
}

// The names of interfaces that are no Pod's.
const (
	hostInterface  = "host"
	vxlanInterface = "vxlan"
	goneInterface  = "gone"
	// uplinkInterface is where a node meets the outside.
	uplinkInterface = "uplink"
)

// Drops are the counters of all that was dropped.
func (n *Network) Drops(f Filter) ([]Drop, error) {
	f, err := n.resolve(f)
	if err != nil {
		return nil, err
	}
	rows := []Drop{}
	err = n.each(f.Node, func(m Member, d *datapath.Datapath) error {
		counts, err := d.Drops.List()
		owners, ownersErr := n.owners(m, d)
		if err := errors.Join(err, ownersErr); err != nil {
			return err
		}
		for key, count := range counts {
			owner := owners.of(key.Ifindex)
			if count.Packets == 0 || !f.matches(owner) {
				continue
			}
			rows = append(rows, Drop{
				Owner: owner, Reason: key.Reason.String(), Meaning: key.Reason.Meaning(), Remedy: key.Reason.Remedy(),
				Expected: key.Reason.Expected(), Packets: count.Packets, Bytes: count.Bytes,
			})
		}
		return nil
	})
	byNames(rows, func(d Drop) []string { return []string{d.Node, d.VPC, d.Namespace, d.Pod, d.Interface, d.Reason} })
	return rows, err
}

// resolve refuses a VPC or node that does not exist, and gives the VPC the name that rows have.
func (n *Network) resolve(f Filter) (Filter, error) {
	if _, err := n.chosen(f.Node); err != nil {
		return f, err
	}
	if f.VPC == "" {
		return f, nil
	}
	id, err := n.Objects.vpcID(f.VPC)
	f.VPC = n.Objects.vpcName(id)
	return f, err
}

func (f Filter) matches(o Owner) bool {
	return (f.VPC == "" || f.VPC == o.VPC) && (f.Namespace == "" || f.Namespace == o.Namespace) && (f.Pod == "" || f.Pod == o.Pod)
}

// owners tells whose interfaces of a node are.
type owners struct {
	network *Network
	node    string
	nics    map[uint32]datapath.NIC
	// others are the links that are no Pod's, by ifindex.
	others map[int]string
}

func (n *Network) owners(m Member, d *datapath.Datapath) (owners, error) {
	o := owners{network: n, node: m.Name, others: map[int]string{}}
	var err error
	if o.nics, err = d.NICs.List(); err != nil {
		return o, err
	}
	return o, m.in(func() error {
		uplink, err := datapath.FindUplink(m.PinPath)
		if err != nil {
			return err
		}
		links, err := netlink.LinkList()
		for _, l := range links {
			o.others[l.Attrs().Index] = hostInterface
			switch {
			case l.Type() == vxlanInterface:
				o.others[l.Attrs().Index] = vxlanInterface
			case l.Attrs().Index == uplink:
				o.others[l.Attrs().Index] = uplinkInterface
			}
		}
		return err
	})
}

func (o owners) of(ifindex int) Owner {
	nic, ok := o.nics[uint32(ifindex)]
	if !ok {
		name := o.others[ifindex]
		if name == "" {
			name = goneInterface
		}
		return Owner{Node: o.node, Interface: name}
	}
	objects := o.network.Objects
	owner := Owner{
		Node: o.node, VPC: objects.vpcName(nic.VPCID), Subnet: objects.subnetName(nic.VNI), Address: nic.Address.String(),
		Interface: nic.Address.String(),
	}
	if object := objects.at(nic.VNI, nic.Address); object != nil {
		owner.Interface = object.Name
		if object.Spec.Pod != nil {
			owner.Namespace, owner.Pod = object.Spec.Pod.Namespace, object.Spec.Pod.Name
		}
	}
	return owner
}
