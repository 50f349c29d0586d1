package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/mnicloud/mnicloud/network/datapath"
)

// Member is a host of the network that is on this machine.
type Member struct {
	// Name of the node, or what the machine itself is called.
	Name string
	// PinPath is the folder of its pinned maps and links.
	PinPath string
	// Netns is the path of its network namespace; empty for the machine's own.
	Netns string
}

// Network is the members on this machine and what the API says.
type Network struct {
	Members []Member
	Objects *Objects
}

// in runs a function in the member's network namespace.
func (m Member) in(do func() error) error {
	var err error
	if m.Netns == "" {
		err = do()
	} else {
		err = ns.WithNetNSPath(m.Netns, func(ns.NetNS) error { return do() })
	}
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	return nil
}

// open opens the member's maps.
func (m Member) open() (*datapath.Datapath, error) {
	d, err := datapath.Open(m.PinPath)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%s: you may not read the maps of the datapath: run as root: %w", m.Name, err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: no datapath is pinned at %s: is its mni-netd running? %w", m.Name, m.PinPath, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	return d, nil
}

// each opens the members' maps in turn. One that cannot be opened does not keep the others from being seen.
func (n *Network) each(node string, do func(Member, *datapath.Datapath) error) error {
	members, err := n.chosen(node)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range members {
		d, err := m.open()
		if err == nil {
			err = errors.Join(do(m, d), d.Close())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// chosen are all members, or the one of a name.
func (n *Network) chosen(node string) ([]Member, error) {
	if node == "" {
		return n.Members, nil
	}
	m, err := n.member(node)
	return []Member{m}, err
}

func (n *Network) member(name string) (Member, error) {
	for _, m := range n.Members {
		if m.Name == name {
			return m, nil
		}
	}
	return Member{}, fmt.Errorf("there is no node %q on this machine; there are: %s", name, strings.Join(n.MemberNames(), ", "))
}

// MemberNames are the names of the members.
func (n *Network) MemberNames() []string {
	var names []string
	for _, m := range n.Members {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// hostAddress is a member's address on the underlay: of the endpoint that is its own host.
func hostAddress(endpoints map[datapath.EndpointKey]datapath.Endpoint) netip.Addr {
	for key, e := range endpoints {
		if e.Kind == datapath.EndpointHost && !e.Node.IsValid() {
			return key.Address
		}
	}
	return netip.Addr{}
}
