package attachment

import (
	"fmt"
	"net/netip"
	"strings"

	cnitypes "github.com/containernetworking/cni/pkg/types"

	"github.com/mnicloud/mnicloud/network/plugin/protocol"
)

// checkPorts refuses host ports that cannot be: the host's ports lead to ordinary Pods only, never into a tenant's VPC.
func checkPorts(mappings []protocol.PortMapping, nic Interface) error {
	for _, m := range mappings {
		refuse := func(why string) error {
			return cnitypes.NewError(cnitypes.ErrInvalidNetworkConfig, fmt.Sprintf("hostPort %d of containerPort %d: %s", m.HostPort, m.ContainerPort, why), "")
		}
		address, err := netip.ParseAddr(m.HostIP)
		switch {
		case nic.Infrastructure != nic.Prefix.Addr():
			return refuse("Pods in a tenant's VPC have no ports of the host; remove hostPort")
		case !strings.EqualFold(m.Protocol, "tcp") && !strings.EqualFold(m.Protocol, "udp"):
			return refuse("protocol " + m.Protocol + " is not supported; use TCP or UDP, or remove hostPort")
		case m.HostIP != "" && (err != nil || !address.Is4()):
			return refuse("hostIP " + m.HostIP + " is not an IPv4 address; IPv6 is not supported yet")
		case m.HostPort < 1 || m.HostPort > 65535 || m.ContainerPort < 1 || m.ContainerPort > 65535:
			return refuse("ports are 1 to 65535")
		}
	}
	return nil
}
