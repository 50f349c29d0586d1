package inspect

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// source is who sends a traced packet.
type source struct {
	member Member
	// host is set for a node's own stack, outside for what arrives at a node's uplink; ifindex is an interface otherwise.
	host         bool
	outside      bool
	ifindex      int
	mac, gateway datapath.MAC
	address      netip.Addr
	name         string
}

func (s source) String() string { return s.name }

// nodePrefix begins the name of a node as a sender, outsidePrefix the address of one outside.
const (
	nodePrefix    = "node/"
	outsidePrefix = "outside/"
)

// source finds who is meant by NAMESPACE/POD, ADDRESS@VPC, node/NAME or outside/ADDRESS, whose packets arrive at the first node.
func (n *Network) source(from string) (source, error) {
	if name, ok := strings.CutPrefix(from, nodePrefix); ok {
		m, err := n.member(name)
		if err != nil {
			return source{}, err
		}
		address, err := m.address()
		return source{member: m, host: true, address: address, name: from}, err
	}
	if text, ok := strings.CutPrefix(from, outsidePrefix); ok {
		return n.outside(from, text)
	}
	if address, vpc, ok := strings.Cut(from, "@"); ok {
		a, err := netip.ParseAddr(address)
		if err != nil || !a.Is4() {
			return source{}, fmt.Errorf("%q: %q is not an IPv4 address", from, address)
		}
		id, err := n.Objects.vpcID(vpc)
		if err != nil {
			return source{}, err
		}
		return n.sourceAt(from, func(nic datapath.NIC) bool { return nic.VPCID == id && nic.Address == a })
	}
	if namespace, pod, ok := strings.Cut(from, "/"); !ok || namespace == "" || pod == "" || strings.Contains(pod, "/") {
		return source{}, fmt.Errorf("%q is not NAMESPACE/POD, ADDRESS@VPC, node/NAME or outside/ADDRESS", from)
	}
	nic, err := n.Objects.ofPod(from)
	if err != nil {
		return source{}, err
	}
	address, err := netip.ParseAddr(nic.Status.Address)
	if err != nil {
		return source{}, fmt.Errorf("%s has no address yet: `kubectl describe networkinterface %s` tells why", from, nic.Name)
	}
	return n.sourceAt(from, func(at datapath.NIC) bool { return at.VNI == nic.Status.VNI && at.Address == address })
}

// outside is a sender outside, whose packets arrive at the first node that has Pods' network.
func (n *Network) outside(from, text string) (source, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() {
		return source{}, fmt.Errorf("%q: %q is not an IPv4 address", from, text)
	}
	for _, m := range n.Members {
		var uplink int
		if err := m.in(func() (err error) {
			uplink, err = datapath.FindUplink(m.PinPath)
			return err
		}); err != nil {
			return source{}, err
		}
		if uplink != 0 {
			return source{member: m, outside: true, address: a, name: from}, nil
		}
	}
	return source{}, fmt.Errorf("%q: no node of this machine has an uplink", from)
}

// sourceAt finds the interface on the members of this machine.
func (n *Network) sourceAt(name string, is func(datapath.NIC) bool) (source, error) {
	var found []source
	err := n.each("", func(m Member, d *datapath.Datapath) error {
		nics, err := d.NICs.List()
		for ifindex, nic := range nics {
			if is(nic) {
				found = append(found, source{member: m, ifindex: int(ifindex), mac: nic.MAC, gateway: nic.GatewayMAC, address: nic.Address, name: name})
			}
		}
		return err
	})
	switch {
	case len(found) > 0:
		return found[0], nil
	case err != nil:
		return source{}, err
	}
	return source{}, fmt.Errorf("no node of this machine has the interface of %s: is it running? (`mni net routes` tells which addresses are known)", name)
}

// ofPod finds a Pod's interface.
func (o *Objects) ofPod(pod string) (*netv1.NetworkInterface, error) {
	i := slices.IndexFunc(o.interfaces, func(nic netv1.NetworkInterface) bool { return podOf(&nic) == pod })
	if i >= 0 {
		return &o.interfaces[i], nil
	}
	if len(o.interfaces) == 0 {
		return nil, errors.New("no Pod has an interface")
	}
	namespace, _, _ := strings.Cut(pod, "/")
	names := slices.DeleteFunc(o.PodNames(), func(name string) bool { return !strings.HasPrefix(name, namespace+"/") })
	if len(names) == 0 {
		return nil, fmt.Errorf("no Pod of namespace %q has an interface; there are: %s", namespace, someOf(o.PodNames()))
	}
	return nil, fmt.Errorf("there is no Pod %q with an interface; namespace %s has: %s", pod, namespace, someOf(names))
}
