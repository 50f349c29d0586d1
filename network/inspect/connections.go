package inspect

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mnicloud/mnicloud/network/datapath"
)

// Connection is a flow that a node knows.
type Connection struct {
	Owner
	// Kind is why it is known: service (it goes through a Service), policy (a policy let it through), infrastructure (a host or the
	// platform's Pod opened it to an infrastructure address) or nat (it leaves by a NATGateway).
	Kind string `json:"kind"`
	// Protocol is tcp, udp, icmp or a number.
	Protocol string `json:"protocol"`
	// Source began it, to Destination. Of ping the port is the identifier.
	Source      string `json:"source"`
	Destination string `json:"destination"`
	// Translated is what Destination becomes: a Service's backend, or an interface's own address. By a NATGateway it is what Source becomes.
	Translated string `json:"translated,omitempty"`
	// State is new (no answer yet), established, closing or cut (a policy does not let it pass any more).
	State string `json:"state"`
	// AgeSeconds is the time since its last packet.
	AgeSeconds int64 `json:"ageSeconds"`

	source, destination netip.AddrPort
}

// Kinds of connections.
const (
	KindService        = "service"
	KindPolicy         = "policy"
	KindInfrastructure = "infrastructure"
	KindNAT            = "nat"
)

// Connections are the flows that the nodes know, those that have just been used first. An address chooses those that it is an end
// of; the zero Addr all.
func (n *Network) Connections(f Filter, address netip.Addr) ([]Connection, error) {
	f, err := n.resolve(f)
	if err != nil {
		return nil, err
	}
	now, err := datapath.SinceBoot()
	if err != nil {
		return nil, err
	}
	rows := []Connection{}
	err = n.each(f.Node, func(m Member, d *datapath.Datapath) error {
		owners, err := n.owners(m, d)
		if err != nil {
			return err
		}
		known, err := connectionsOf(owners, d, now)
		for _, c := range known {
			if f.matches(c.Owner) && (!address.IsValid() || c.has(address)) {
				rows = append(rows, c)
			}
		}
		return err
	})
	slices.SortStableFunc(rows, func(a, b Connection) int { return int(a.AgeSeconds - b.AgeSeconds) })
	return rows, err
}

func (c Connection) has(address netip.Addr) bool {
	if c.source.Addr() == address || c.destination.Addr() == address {
		return true
	}
	host, _, _ := strings.Cut(c.Translated, ":")
	return host == address.String()
}

func connectionsOf(o owners, d *datapath.Datapath, now time.Duration) ([]Connection, error) {
	services, servicesErr := d.Conntrack.List()
	policed, policedErr := d.Flows.List()
	openings, openingsErr := d.Openings.List()
	translated, translatedErr := d.NAT.List()
	var all []Connection
	for _, s := range services {
		all = append(all, Connection{
			Owner: o.at(s.VPCID, s.Client.Addr()), Kind: KindService, Protocol: protocolName(s.Protocol),
			source: s.Client, destination: s.Service, Translated: s.Backend.String(),
			State: state(s.Replied, s.Closing, false), AgeSeconds: age(now, s.LastSeen),
		})
	}
	for _, p := range policed {
		c := Connection{
			Owner: o.of(p.Ifindex), Kind: KindPolicy, Protocol: protocolName(p.Protocol), source: p.Remote, destination: p.Local,
			State: state(p.Replied, p.Closing, p.Cut), AgeSeconds: age(now, p.LastSeen),
		}
		if p.Out {
			c.source, c.destination = p.Local, p.Remote
		}
		all = append(all, c)
	}
	for _, p := range openings {
		all = append(all, Connection{
			Owner: o.at(p.VPCID, p.Interface.Addr()), Kind: KindInfrastructure, Protocol: protocolName(p.Protocol),
			source: p.Opener, destination: p.Infrastructure, Translated: p.Interface.String(),
			State: state(p.Replied, p.Closing, false), AgeSeconds: age(now, p.LastSeen),
		})
	}
	for _, f := range translated {
		all = append(all, Connection{
			Owner: o.at(f.VPCID, f.Inner.Addr()), Kind: KindNAT, Protocol: protocolName(f.Protocol),
			source: f.Inner, destination: f.Remote, Translated: f.External.String(),
			State: state(f.Replied, f.Closing, false), AgeSeconds: age(now, f.LastSeen),
		})
	}
	for i := range all {
		all[i].Source, all[i].Destination = all[i].source.String(), all[i].destination.String()
	}
	return all, errors.Join(servicesErr, policedErr, openingsErr, translatedErr)
}

// at is the owner of an address of a VPC on the node: an interface, or the host.
func (o owners) at(vpc uint32, address netip.Addr) Owner {
	for ifindex, nic := range o.nics {
		if nic.VPCID == vpc && nic.Address == address {
			return o.of(int(ifindex))
		}
	}
	return Owner{Node: o.node, VPC: o.network.Objects.vpcName(vpc), Interface: hostInterface, Address: address.String()}
}

// States are those that a connection can be in.
var States = []string{"new", "established", "closing", "cut"}

func state(replied, closing, cut bool) string {
	switch {
	case cut:
		return "cut"
	case closing:
		return "closing"
	case replied:
		return "established"
	default:
		return "new"
	}
}

func protocolName(p datapath.Protocol) string {
	switch p {
	case datapath.TCP, datapath.UDP, datapath.ICMP:
		return strings.ToLower(p.String())
	}
	return fmt.Sprint(uint8(p))
}

func age(now, seen time.Duration) int64 { return int64(max(0, now-seen) / time.Second) }
