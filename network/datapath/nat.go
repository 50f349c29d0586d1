package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
)

// PortBlockSize is how many ports a PortBlock has.
const PortBlockSize = 512

// PortBlock is PortBlockSize ports of an external address, of TCP and UDP and as identifiers of ping.
type PortBlock struct {
	Address netip.Addr
	// First port, a multiple of PortBlockSize.
	First uint16
}

func (b PortBlock) String() string { return fmt.Sprintf("%s.%d", b.Address, b.First) }

// blockOf is the block that a port is in.
func blockOf(port netip.AddrPort) PortBlock {
	return PortBlock{port.Addr(), port.Port() &^ (PortBlockSize - 1)}
}

// NATState is what NAT should be.
type NATState struct {
	// Subnets are those that a NATGateway serves, by VNI, with this node's blocks of it. The last of them is the spare one. A Subnet
	// without any drops what it sends out.
	Subnets map[uint32][]PortBlock
	// Kept are blocks with which a Subnet begins no flow any more, and whose flows go on.
	Kept map[uint32][]PortBlock
	// Members have the blocks of external addresses, by their address on the underlay; the zero Addr means this node.
	Members map[PortBlock]netip.Addr
}

type (
	natTable   = Table[uint32, natSubnet, uint32, bpfNat]
	slotTable  = Table[natSlot, PortBlock, bpfNatBlockKey, bpfNatBlock]
	ownerTable = Table[PortBlock, netip.Addr, bpfPortBlockKey, bpfPortBlock]
)

// natSubnet is how many blocks a Subnet has.
type natSubnet struct{ blocks uint32 }

// natSlot is where a block of a Subnet is.
type natSlot struct{ vni, slot uint32 }

// NAT is the tables of NATGateways.
type NAT struct {
	subnets *natTable
	slots   *slotTable
	owners  *ownerTable
	wants   *ebpf.Map
	flows   *ebpf.Map
	// purged tells that no flow is left of what an earlier process gave back.
	purged bool
	// kept are the blocks that began no flow any more when it was last brought to what it should be.
	kept map[uint32][]PortBlock
}

func newNAT(m map[string]*ebpf.Map) *NAT {
	return &NAT{
		subnets: newTable(m[bpfMapNats], bpfMapNats, uint32Codec(), codec[natSubnet, bpfNat]{
			encode: func(s natSubnet) (bpfNat, error) { return bpfNat{Blocks: s.blocks}, nil },
			decode: func(w bpfNat) natSubnet { return natSubnet{w.Blocks} },
		}),
		slots:  newTable(m[bpfMapNatBlocks], bpfMapNatBlocks, natSlotCodec(), natBlockCodec()),
		owners: newTable(m[bpfMapPortBlocks], bpfMapPortBlocks, portBlockCodec(), portBlockOwnerCodec()),
		wants:  m[bpfMapNatWants],
		flows:  m[bpfMapNatFlows],
	}
}

// Sync makes the tables what they should be, and forgets the flows of ports that this node, or a Subnet, no longer has: when it
// returns no packet has such a port. It returns how many entries it wrote and deleted, 0 in steady state.
func (n *NAT) Sync(s NATState) (int, error) {
	subnets, slots := map[uint32]natSubnet{}, map[natSlot]PortBlock{}
	for vni, blocks := range s.Subnets {
		subnets[vni] = natSubnet{uint32(len(blocks))}
		for i, block := range blocks {
			slots[natSlot{vni, uint32(i)}] = block
		}
	}
	before, err := n.slots.List()
	if err != nil {
		return 0, err
	}
	total := 0
	var errs []error
	note := func(changes int, err error) {
		total += changes
		errs = append(errs, err)
	}
	note(n.owners.Sync(s.Members))
	note(n.slots.add(slots)) // first there are blocks, then they are used
	note(n.subnets.Sync(subnets))
	note(n.slots.Sync(slots))
	if err := errors.Join(errs...); err != nil {
		n.purged = false
		return total, err
	}
	for slot, block := range before {
		n.purged = n.purged && (slots[slot] == block || s.has(slot.vni, block))
	}
	for vni, blocks := range n.kept {
		for _, block := range blocks {
			n.purged = n.purged && s.has(vni, block)
		}
	}
	if !n.purged {
		awaitPrograms()
		if err := n.purge(s); err != nil {
			return total, err
		}
		n.purged = true
	}
	n.kept = s.Kept
	return total, nil
}

// State is what the tables are.
func (n *NAT) State() (NATState, error) {
	s := NATState{Subnets: map[uint32][]PortBlock{}}
	subnets, err := n.subnets.List()
	if err != nil {
		return s, err
	}
	slots, err := n.slots.List()
	if err != nil {
		return s, err
	}
	for vni, subnet := range subnets {
		for i := range subnet.blocks {
			s.Subnets[vni] = append(s.Subnets[vni], slots[natSlot{vni, i}])
		}
		if subnet.blocks == 0 {
			s.Subnets[vni] = nil
		}
	}
	s.Members, err = n.owners.List()
	return s, err
}

// has tells whether a Subnet may have flows with a block's ports.
func (s NATState) has(vni uint32, b PortBlock) bool {
	return slices.Contains(s.Subnets[vni], b) || slices.Contains(s.Kept[vni], b)
}

// add sets what is new or different.
func (t *Table[K, V, WK, WV]) add(desired map[K]V) (int, error) {
	have, err := t.List()
	if err != nil {
		return 0, err
	}
	var changes int
	var errs []error
	for key, value := range desired {
		if old, ok := have[key]; ok && old == value {
			continue
		}
		changes++
		errs = append(errs, t.Set(key, value))
	}
	return changes, errors.Join(errs...)
}

// Wants are the Subnets whose spare block is in use, by VNI, and how many blocks they had then. Each is told once.
func (n *NAT) Wants() (map[uint32]int, error) {
	wants := map[uint32]int{}
	err := eachEntry(n.wants, bpfMapNatWants, func(vni uint32, want bpfNatWant) error {
		wants[vni] = int(want.Blocks)
		return nil
	})
	for vni := range wants {
		if deleteErr := n.wants.Delete(bytesOf(&vni)); deleteErr != nil && !errors.Is(deleteErr, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("%s: delete: %w", bpfMapNatWants, deleteErr))
		}
	}
	return wants, err
}

func natSlotCodec() codec[natSlot, bpfNatBlockKey] {
	return codec[natSlot, bpfNatBlockKey]{
		encode: func(s natSlot) (bpfNatBlockKey, error) { return bpfNatBlockKey{Vni: s.vni, Slot: s.slot}, nil },
		decode: func(w bpfNatBlockKey) natSlot { return natSlot{w.Vni, w.Slot} },
	}
}

func natBlockCodec() codec[PortBlock, bpfNatBlock] {
	return codec[PortBlock, bpfNatBlock]{
		encode: func(b PortBlock) (bpfNatBlock, error) {
			return bpfNatBlock{Address: toAddress(b.Address), FirstPort: uint32(b.First)}, b.validate()
		},
		decode: func(w bpfNatBlock) PortBlock { return PortBlock{fromAddress(w.Address), uint16(w.FirstPort)} },
	}
}

func (b PortBlock) validate() error {
	if b.First%PortBlockSize != 0 || b.First < 2*PortBlockSize {
		return fmt.Errorf("first port %d is not a multiple of %d from %d on", b.First, PortBlockSize, 2*PortBlockSize)
	}
	return requireIPv4("external address", b.Address)
}

func portBlockCodec() codec[PortBlock, bpfPortBlockKey] {
	return codec[PortBlock, bpfPortBlockKey]{
		encode: func(b PortBlock) (bpfPortBlockKey, error) {
			return bpfPortBlockKey{Address: toAddress(b.Address), Block: uint32(b.First) / PortBlockSize}, b.validate()
		},
		decode: func(w bpfPortBlockKey) PortBlock {
			return PortBlock{fromAddress(w.Address), uint16(w.Block * PortBlockSize)}
		},
	}
}

func portBlockOwnerCodec() codec[netip.Addr, bpfPortBlock] {
	return codec[netip.Addr, bpfPortBlock]{
		encode: func(node netip.Addr) (bpfPortBlock, error) {
			if !node.IsValid() {
				return bpfPortBlock{}, nil
			}
			return bpfPortBlock{Node: toAddress(node)}, requireIPv4("node", node)
		},
		decode: func(w bpfPortBlock) netip.Addr { return fromAddress(w.Node) },
	}
}
