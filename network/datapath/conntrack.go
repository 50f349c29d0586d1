package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
)

// Flow is a connection through a Service as the client's node knows it.
type Flow struct {
	VPCID    uint32
	Protocol Protocol
	// Client, Service and Backend are the three parties.
	Client, Service, Backend netip.AddrPort
	// NATPort is the client's port as the backend sees it: another than Client's only when two flows would collide.
	NATPort uint16
	// Replied tells that the backend has answered; Closing that both sides ended, or one aborted, the connection.
	Replied, Closing bool
	// LastSeen is the time since boot of the last packet, to the second.
	LastSeen time.Duration
}

// Conntrack is the table of flows through Services. The kernel evicts those not used for the longest time.
type Conntrack struct{ m *ebpf.Map }

// List returns the flows whose client is on this node.
func (c *Conntrack) List() ([]Flow, error) {
	var flows []Flow
	err := c.each(func(key bpfConntrackKey, entry bpfConntrack) error {
		if key.Direction == bpfConntrackDirectionCONNTRACK_FORWARD {
			flows = append(flows, flowOf(key, entry))
		}
		return nil
	})
	return flows, err
}

// Clear forgets all flows.
func (c *Conntrack) Clear() error {
	return c.each(func(key bpfConntrackKey, _ bpfConntrack) error { return c.delete(key) })
}

// forget deletes both entries of a Service's flows to the backends that match.
func (c *Conntrack) forget(service ServiceKey, match func(Backend) bool) error {
	at := netip.AddrPortFrom(service.Address, service.Port)
	return c.each(func(key bpfConntrackKey, entry bpfConntrack) error {
		backend := Backend{Address: fromAddress(entry.Backend), Port: networkPort(entry.BackendPort)}
		if key.VpcId != service.VPCID || Protocol(key.Protocol) != service.Protocol ||
			addrPort(entry.Service, entry.ServicePort) != at || !match(backend) {
			return nil
		}
		return c.delete(key)
	})
}

func (c *Conntrack) delete(key bpfConntrackKey) error {
	if err := c.m.Delete(bytesOf(&key)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("conntracks: delete: %w", err)
	}
	return nil
}

func (c *Conntrack) each(visit func(bpfConntrackKey, bpfConntrack) error) error {
	return eachEntry(c.m, "conntracks", visit)
}

// eachEntry visits the entries of a table that programs write. A busy one changes while it is read; what was seen of it is true.
func eachEntry[K, V any](m *ebpf.Map, name string, visit func(K, V) error) error {
	var key K
	var entry V
	if m.KeySize() != uint32(len(bytesOf(&key))) || m.ValueSize() != uint32(len(bytesOf(&entry))) {
		return nil // of another version's object file
	}
	var errs []error
	iterator := m.Iterate()
	for iterator.Next(bytesOf(&key), bytesOf(&entry)) {
		errs = append(errs, visit(key, entry))
	}
	if err := iterator.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		errs = append(errs, fmt.Errorf("%s: list: %w", name, err))
	}
	return errors.Join(errs...)
}

func flowOf(key bpfConntrackKey, entry bpfConntrack) Flow {
	return Flow{
		VPCID:    key.VpcId,
		Protocol: Protocol(key.Protocol),
		Client:   addrPort(key.Source, key.SourcePort),
		Service:  addrPort(entry.Service, entry.ServicePort),
		Backend:  addrPort(entry.Backend, entry.BackendPort),
		NATPort:  networkPort(entry.NatPort),
		Replied:  entry.Flags&bpfConntrackFlagsCONNTRACK_SEEN_REPLY != 0,
		Closing:  isClosed(entry.Flags),
		LastSeen: time.Duration(entry.LastSeen) * time.Second,
	}
}

func addrPort(address bpfAddress, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(fromAddress(address), networkPort(port))
}
