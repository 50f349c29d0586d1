package attachment

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/plugin/protocol"
)

func TestHostPortsLeadToOrdinaryPodsOnly(t *testing.T) {
	ordinary := Interface{Prefix: netip.MustParsePrefix("198.18.0.5/17"), Infrastructure: netip.MustParseAddr("198.18.0.5")}
	tenant := Interface{Prefix: netip.MustParsePrefix("10.0.0.5/24"), Infrastructure: netip.MustParseAddr("198.18.0.5")}
	web := protocol.PortMapping{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}
	require.NoError(t, checkPorts([]protocol.PortMapping{web, {HostPort: 53, ContainerPort: 53, Protocol: "UDP", HostIP: "192.0.2.2"}, {HostPort: 53, ContainerPort: 53, Protocol: "UDP", HostIP: "127.0.0.1"}}, ordinary))
	require.NoError(t, checkPorts(nil, tenant))
	for says, c := range map[string]struct {
		nic    Interface
		change func(*protocol.PortMapping)
	}{
		"Pods in a tenant's VPC have no ports of the host": {tenant, func(*protocol.PortMapping) {}},
		"protocol sctp is not supported":                   {ordinary, func(m *protocol.PortMapping) { m.Protocol = "sctp" }},
		"hostIP fd00::1 is not an IPv4 address":            {ordinary, func(m *protocol.PortMapping) { m.HostIP = "fd00::1" }},
		"hostIP here is not an IPv4 address":               {ordinary, func(m *protocol.PortMapping) { m.HostIP = "here" }},
		"ports are 1 to 65535":                             {ordinary, func(m *protocol.PortMapping) { m.ContainerPort = 70000 }},
	} {
		m := web
		c.change(&m)
		require.ErrorContains(t, checkPorts([]protocol.PortMapping{m}, c.nic), "hostPort 8080 of containerPort")
		require.ErrorContains(t, checkPorts([]protocol.PortMapping{m}, c.nic), says)
	}
}
