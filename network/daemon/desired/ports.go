package desired

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/network/daemon/host"
)

// Ports are the host's ports that lead to a node's Pods, in order: those of the attachments that have a right to their
// addresses now. Attachments were checked when they were made.
func Ports(in Input) []host.PortMapping {
	var mappings []host.PortMapping
	for _, a := range current(in.Attachments, in.Interfaces, in.Node) {
		for _, p := range a.Ports {
			m := host.PortMapping{
				Protocol: unix.IPPROTO_TCP, Host: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(p.HostPort)),
				Pod: netip.AddrPortFrom(a.Interface.Prefix.Addr(), uint16(p.ContainerPort)),
			}
			if strings.EqualFold(p.Protocol, "udp") {
				m.Protocol = unix.IPPROTO_UDP
			}
			if address, err := netip.ParseAddr(p.HostIP); err == nil {
				m.Host = netip.AddrPortFrom(address, m.Host.Port())
			}
			mappings = append(mappings, m)
		}
	}
	slices.SortFunc(mappings, func(a, b host.PortMapping) int {
		// One address before all: the first rule that matches counts.
		return cmp.Or(-a.Host.Compare(b.Host), cmp.Compare(a.Protocol, b.Protocol), a.Pod.Compare(b.Pod))
	})
	return mappings
}
