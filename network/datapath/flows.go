package datapath

import (
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
)

// PolicedFlow is a flow that policies know of, as one interface of this node sees it.
type PolicedFlow struct {
	VPCID uint32
	// Ifindex is the host side of the interface.
	Ifindex  int
	Protocol Protocol
	// Local is the interface's side, Remote the other. Of ICMP echo the port is the identifier.
	Local, Remote netip.AddrPort
	// Out tells that the interface began it, otherwise the other side did.
	Out bool
	// Policy is the one that it was judged by, and Cut that it does not let it pass any more.
	Policy PolicyID
	Cut    bool
	// Replied tells that the other side has answered; Closing that both sides ended, or one aborted, the connection.
	Replied, Closing bool
	// LastSeen is the time since boot of the last packet, to the second.
	LastSeen time.Duration
}

// Flows is the table of flows that policies have let through. The kernel evicts those not used for the longest time.
type Flows struct{ m *ebpf.Map }

// List returns all entries.
func (f *Flows) List() ([]PolicedFlow, error) {
	var flows []PolicedFlow
	err := eachEntry(f.m, bpfMapFlows, func(key bpfFlowKey, entry bpfFlow) error {
		flows = append(flows, PolicedFlow{
			VPCID: key.VpcId, Ifindex: int(key.Ifindex), Protocol: Protocol(key.Protocol),
			Local: addrPort(key.Local, key.LocalPort), Remote: addrPort(key.Remote, key.RemotePort),
			Out:    bpfFlowOrigin(entry.Origin) == bpfFlowOriginFLOW_OUT,
			Policy: PolicyID(entry.Verdict), Cut: entry.Verdict>>32 != 0,
			Replied: entry.Replied != 0, Closing: entry.Reset != 0 || (entry.FinIn != 0 && entry.FinOut != 0),
			LastSeen: time.Duration(entry.LastSeen) * time.Second,
		})
		return nil
	})
	return flows, err
}

// Opening is a connection that a host or the platform's Pod opened to the infrastructure address of an interface of this node.
type Opening struct {
	VPCID    uint32
	Protocol Protocol
	// Opener opened the connection to Infrastructure; the interface sees it as Alias at Interface.
	Opener, Infrastructure, Alias, Interface netip.AddrPort
	// Replied and Closing are like PolicedFlow's.
	Replied, Closing bool
	// LastSeen is the time since boot of the opener's last packet, to the second.
	LastSeen time.Duration
}

// Openings is the table of connections to infrastructure addresses.
type Openings struct{ m *ebpf.Map }

// List returns all entries.
func (o *Openings) List() ([]Opening, error) {
	var openings []Opening
	err := eachEntry(o.m, bpfMapAliasFlows, func(key bpfAliasKey, entry bpfAliasFlow) error {
		openings = append(openings, Opening{
			VPCID: key.VpcId, Protocol: Protocol(key.Protocol),
			Opener: addrPort(entry.Opener, entry.OpenerPort), Infrastructure: addrPort(entry.Infrastructure, key.InterfacePort),
			Alias: addrPort(key.Alias, key.AliasPort), Interface: addrPort(key.Interface, key.InterfacePort),
			Replied: entry.Flags&bpfConntrackFlagsCONNTRACK_SEEN_REPLY != 0, Closing: isClosed(entry.Flags),
			LastSeen: time.Duration(entry.LastSeen) * time.Second,
		})
		return nil
	})
	return openings, err
}

// isClosed tells that both sides ended, or one aborted, a connection.
func isClosed(flags bpfConntrackFlags) bool {
	const fins = bpfConntrackFlagsCONNTRACK_FIN_FORWARD | bpfConntrackFlagsCONNTRACK_FIN_REVERSE
	return flags&bpfConntrackFlagsCONNTRACK_RST != 0 || flags&fins == fins
}
