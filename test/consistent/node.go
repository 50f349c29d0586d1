package consistent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/network/daemon"
	"github.com/mnicloud/mnicloud/network/daemon/attachment"
	"github.com/mnicloud/mnicloud/network/daemon/desired"
	"github.com/mnicloud/mnicloud/network/datapath"
	"github.com/mnicloud/mnicloud/network/routing"
)

// attachmentsDir is where a node's daemon keeps its records, in the node's file system.
const attachmentsDir = "var/lib/mni-netd/attachments"

// aliasPrefix begins the alias of the host's end of each attachment's link.
const aliasPrefix = "mni-netd attachment "

// Node says what on one node differs from what the API server and the attachments on the node say should be there.
func Node(ctx context.Context, from client.Reader, n instance.Node) ([]string, error) {
	records, err := records(n)
	if err != nil {
		return nil, err
	}
	links, err := links(n)
	if err != nil {
		return nil, err
	}
	in, err := input(ctx, from, n)
	if err != nil {
		return nil, err
	}
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, n.Name()+": "+fmt.Sprintf(format, args...)) }
	held := map[string]bool{}
	for i := range in.Interfaces {
		if pod := in.Interfaces[i].Spec.Pod; pod != nil && in.Interfaces[i].Spec.Node == n.Name() {
			held[string(pod.UID)] = true
		}
	}
	for key, r := range records {
		ifindex, there := links[key]
		switch {
		case !there:
			say("the record of %s (Pod %s) has no link", key, r.Interface.Pod)
		case !r.Complete:
			say("the record of %s (Pod %s) is not complete", key, r.Interface.Pod)
		case !held[string(r.Interface.Pod.UID)]:
			say("Pod %s is attached, and holds no interface here", r.Interface.Pod)
		}
		if there {
			in.Attachments = append(in.Attachments, desired.Attachment{Record: r, Ifindex: ifindex})
		}
	}
	for key := range links {
		if _, there := records[key]; !there {
			say("the link of %s has no record", key)
		}
	}
	maps, err := compareMaps(n, desired.Compute(in))
	if err != nil {
		return nil, err
	}
	pins, err := comparePins(n, links)
	return append(append(wrong, maps...), pins...), err
}

// records are the attachments that the node's daemon has noted, by key.
func records(n instance.Node) (map[string]attachment.Record, error) {
	files, err := filepath.Glob(filepath.Join(n.StateDir(), attachmentsDir, "*.json"))
	if err != nil {
		return nil, err
	}
	found := map[string]attachment.Record{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var r attachment.Record
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		found[r.Key()] = r
	}
	return found, nil
}

// links are the ifindexes of the host's ends of attachments, by key.
func links(n instance.Node) (map[string]int, error) {
	found := map[string]int{}
	err := node.Run(n, func() error {
		all, err := netlink.LinkList()
		for _, l := range all {
			if key, ours := strings.CutPrefix(l.Attrs().Alias, aliasPrefix); ours {
				found[key] = l.Attrs().Index
			}
		}
		return err
	})
	return found, err
}

// input is what the maps depend on beside the attachments, as the API server has it.
func input(ctx context.Context, from client.Reader, n instance.Node) (desired.Input, error) {
	in, err := daemon.ReadInput(ctx, from)
	addresses := n.Instance.Addresses()
	in.Node, in.Address = n.Name(), n.Address()
	in.ExtraHosts = append(in.ExtraHosts, addresses.Machine)
	in.Reserved = append(routing.Reserved(), addresses.Infrastructure, addresses.Services, addresses.Underlay)
	return in, err
}

func compareMaps(n instance.Node, want desired.State) ([]string, error) {
	d, err := datapath.Open(n.PinDir())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Name(), err)
	}
	defer d.Close()
	var wrong []string
	nat, err := d.NAT.State()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Name(), err)
	}
	err = errors.Join(
		compare(&wrong, n.Name()+": external addresses", want.Externals, d.Externals.List),
		compare(&wrong, n.Name()+": FloatingIPs", want.Floatings, d.Floatings.List),
		compare(&wrong, n.Name()+": PortBlocks", want.NAT.Members, func() (map[datapath.PortBlock]netip.Addr, error) { return nat.Members, nil }),
		compare(&wrong, n.Name()+": ports of Subnets", inWords(want.NAT.Subnets), func() (map[uint32]string, error) { return inWords(nat.Subnets), nil }),
		compare(&wrong, n.Name()+": members", want.Members, d.Members.List),
		compare(&wrong, n.Name()+": subnets", want.Subnets, d.Subnets.List),
		compare(&wrong, n.Name()+": routes", want.Routes, d.Routes.List),
		compare(&wrong, n.Name()+": next hops", want.Hops, d.Hops.List),
		compare(&wrong, n.Name()+": endpoints", want.Endpoints, d.Endpoints.List),
		compare(&wrong, n.Name()+": forwarders", want.Forwarders, d.Forwarders.List),
		compare(&wrong, n.Name()+": nics", want.NICs, func() (map[uint32]datapath.NIC, error) {
			nics, err := d.NICs.List()
			for key, nic := range nics {
				nic.IngressPolicy, nic.EgressPolicy = 0, 0 // numbers that the daemon gives as it writes
				nics[key] = nic
			}
			return nics, err
		}),
	)
	return wrong, err
}

// inWords makes lists of ports comparable.
func inWords(subnets map[uint32][]datapath.PortBlock) map[uint32]string {
	words := map[uint32]string{}
	for vni, blocks := range subnets {
		words[vni] = fmt.Sprint(blocks)
	}
	return words
}

// compare says what is missing, different or too much in a map.
func compare[K, V comparable](wrong *[]string, table string, want map[K]V, list func() (map[K]V, error)) error {
	have, err := list()
	if err != nil {
		return err
	}
	for key, value := range want {
		if got, ok := have[key]; !ok {
			*wrong = append(*wrong, fmt.Sprintf("%s: %v is missing", table, key))
		} else if got != value {
			*wrong = append(*wrong, fmt.Sprintf("%s: %v is %+v, not %+v", table, key, got, value))
		}
	}
	for key := range have {
		if _, ok := want[key]; !ok {
			*wrong = append(*wrong, fmt.Sprintf("%s: %v is left over", table, key))
		}
	}
	return nil
}

// comparePins: with tcx each attachment has one pinned link, and so have the host's veth, the vxlan device and the uplink; with clsact
// there are none.
func comparePins(n instance.Node, links map[string]int) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(n.PinDir(), "links"))
	if err != nil {
		return nil, err
	}
	const others = 3
	if len(entries) == 0 || len(entries) == len(links)+others {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return []string{fmt.Sprintf("%s: %d programs are pinned for %d attachments: %s", n.Name(), len(entries)-others, len(links), strings.Join(names, ", "))}, nil
}

// Cloud compares everything: the API server's objects with each other and with each node.
func Cloud(ctx context.Context, from client.Reader, inst instance.Instance, nodes int) error {
	wrong, err := Objects(ctx, from)
	for _, n := range inst.Nodes(nodes) {
		differences, problem := Node(ctx, from, n)
		wrong, err = append(wrong, differences...), errors.Join(err, problem)
	}
	return Error(wrong, err)
}
