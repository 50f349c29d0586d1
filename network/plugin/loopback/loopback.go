// Package loopback is the CNI plugin "loopback", which container runtimes run for every Pod before the network's own
// plugin: it brings up the loopback interface and keeps no state.
package loopback

import (
	"encoding/json"
	"fmt"
	"net"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Type is the plugin's name in a network configuration and that of its binary.
const Type = "loopback"

// Main runs the command that the environment names (CNI specification 1.1, section 2) and exits.
func Main() {
	nothing := func(*skel.CmdArgs) error { return nil }
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Check: check, Del: nothing, GC: nothing, Status: nothing},
		version.All, "loopback: brings up a Pod's loopback interface")
}

func add(args *skel.CmdArgs) error {
	var conf types.PluginConf
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return types.NewError(types.ErrDecodingFailure, "the network configuration is not valid JSON", err.Error())
	}
	lo, links, err := interfaceIn(args)
	if err != nil {
		return err
	}
	defer links.Close()
	if err := links.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring up %s: %w", args.IfName, err)
	}
	index := 0
	address := func(cidr string) *types100.IPConfig {
		ip, network, _ := net.ParseCIDR(cidr)
		return &types100.IPConfig{Interface: &index, Address: net.IPNet{IP: ip, Mask: network.Mask}}
	}
	result := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{{Name: args.IfName, Mac: "00:00:00:00:00:00", Sandbox: args.Netns}},
		IPs:        []*types100.IPConfig{address("127.0.0.1/8")},
	}
	return types.PrintResult(result, conf.CNIVersion)
}

func check(args *skel.CmdArgs) error {
	lo, links, err := interfaceIn(args)
	if err != nil {
		return err
	}
	defer links.Close()
	if lo.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("%s is down", args.IfName)
	}
	return nil
}

func interfaceIn(args *skel.CmdArgs) (netlink.Link, *netlink.Handle, error) {
	ns, err := netns.GetFromPath(args.Netns)
	if err != nil {
		return nil, nil, fmt.Errorf("open the Pod's network namespace %s: %w", args.Netns, err)
	}
	defer func() { _ = ns.Close() }()
	links, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, nil, fmt.Errorf("enter the Pod's network namespace: %w", err)
	}
	link, err := links.LinkByName(args.IfName)
	if err != nil {
		links.Close()
		return nil, nil, fmt.Errorf("find %s in the Pod: %w", args.IfName, err)
	}
	return link, links, nil
}
