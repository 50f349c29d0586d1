package attachment

import (
	"encoding/json"
	"fmt"
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

// previous is what a CHECK is about of the ADD's result: the same in every version of the specification.
type previous struct {
	Interfaces []struct {
		Name    string `json:"name"`
		MAC     string `json:"mac"`
		Sandbox string `json:"sandbox"`
	} `json:"interfaces"`
	IPs []struct {
		Address netip.Prefix `json:"address"`
	} `json:"ips"`
}

// checkPrevious says how the result that the runtime remembers differs from the attachment; one that it does not have is no
// difference.
func checkPrevious(r Record, result json.RawMessage) error {
	if len(result) == 0 || string(result) == "null" {
		return nil
	}
	var prev previous
	if err := json.Unmarshal(result, &prev); err != nil {
		return fmt.Errorf("prevResult: %w", err)
	}
	want := Result(r, 0)
	for _, ip := range prev.IPs {
		if ip.Address.String() != want.IPs[0].Address.String() {
			return fmt.Errorf("prevResult has the address %s, the container %s", ip.Address, &want.IPs[0].Address)
		}
	}
	for _, i := range prev.Interfaces {
		if i.Sandbox != "" && i.Name == r.IfName && i.MAC != "" && i.MAC != r.Interface.MAC {
			return fmt.Errorf("prevResult has the MAC address %s, the container %s", i.MAC, r.Interface.MAC)
		}
	}
	return nil
}
