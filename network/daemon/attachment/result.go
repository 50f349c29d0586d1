package attachment

import (
	"net/netip"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// Result is the CNI result of an ADD. Its one address is the infrastructure address: it becomes the Pod's status.podIP.
func Result(r Record, mtu int) *types100.Result {
	nic := r.Interface
	container := 1
	address := netip.PrefixFrom(nic.Infrastructure, nic.Infrastructure.BitLen())
	if nic.Infrastructure == nic.Prefix.Addr() {
		address = nic.Prefix
	}
	return &types100.Result{
		CNIVersion: "1.1.0",
		Interfaces: []*types100.Interface{
			{Name: r.HostLink, Mtu: hostMTU},
			{Name: r.IfName, Mac: nic.MAC, Mtu: mtu, Sandbox: r.Netns},
		},
		IPs:    []*types100.IPConfig{{Interface: &container, Address: *ipNet(address)}},
		Routes: []*cnitypes.Route{{Dst: *defaultRoute(0, nic).Dst, GW: nic.Gateway.AsSlice()}},
	}
}
