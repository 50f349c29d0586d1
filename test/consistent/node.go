package consistent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/distro/underlay"
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
	wrong := compareAttachments(&in, n, records, links)
	damaged, err := inspect(n, records, links)
	if err != nil {
		return nil, err
	}
	maps, err := compareMaps(n, desired.Compute(in))
	if err != nil {
		return nil, err
	}
	pins, err := comparePins(n, links)
	all := slices.Concat(wrong, damaged, maps, pins)
	for i := range all {
		all[i] = n.Name() + ": " + all[i]
	}
	return all, err
}

// compareAttachments: each record has a link and is of a Pod that holds an interface, each link has a record, and each Pod that runs has one.
// Attachments that have both go into the input.
func compareAttachments(in *desired.Input, n instance.Node, records map[string]attachment.Record, links map[string]int) []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	held, attached := map[types.UID]bool{}, map[types.UID]bool{}
	for i := range in.Interfaces {
		if pod := in.Interfaces[i].Spec.Pod; pod != nil && in.Interfaces[i].Spec.Node == n.Name() {
			held[pod.UID] = true
		}
	}
	for key, r := range records {
		ifindex, there := links[key]
		switch {
		case !there:
			say("the record of %s (Pod %s) has no link", key, r.Interface.Pod)
		case !r.Complete:
			say("the record of %s (Pod %s) is not complete", key, r.Interface.Pod)
		case !held[r.Interface.Pod.UID]:
			say("Pod %s is attached, and holds no interface here", r.Interface.Pod)
		}
		if there {
			attached[r.Interface.Pod.UID] = true
			in.Attachments = append(in.Attachments, desired.Attachment{Record: r, Ifindex: ifindex})
		}
	}
	for key := range links {
		if _, there := records[key]; !there {
			say("the link of %s has no record", key)
		}
	}
	for i := range in.Pods {
		pod := &in.Pods[i]
		runs := pod.Spec.NodeName == n.Name() && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
		if runs && !pod.Spec.HostNetwork && !attached[pod.UID] {
			say("Pod %s/%s runs and is not attached", pod.Namespace, pod.Name)
		}
	}
	return wrong
}

// inspect looks at both ends of each attachment's link, as a CNI CHECK does.
func inspect(n instance.Node, records map[string]attachment.Record, links map[string]int) ([]string, error) {
	var wrong []string
	err := node.Run(n, func() error {
		for key, r := range records {
			if _, there := links[key]; !there || !r.Complete {
				continue // said already
			}
			if err := r.Inspect(); err != nil {
				wrong = append(wrong, fmt.Sprintf("the link of %s (Pod %s): %v", key, r.Interface.Pod, err))
			}
		}
		return nil
	})
	return wrong, err
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
	nics, err := d.NICs.List()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Name(), err)
	}
	policies, err := comparePolicies(d.Policies, want, nics)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Name(), err)
	}
	wrong = append(wrong, policies...)
	strays, err := d.Services.Strays()
	if strays > 0 {
		wrong = append(wrong, fmt.Sprintf("backends: %d are left over", strays))
	}
	err = errors.Join(err,
		compare(&wrong, "external addresses", want.Externals, d.Externals.List),
		compare(&wrong, "FloatingIPs", want.Floatings, d.Floatings.List),
		compare(&wrong, "PortBlocks", want.NAT.Members, func() (map[datapath.PortBlock]netip.Addr, error) { return nat.Members, nil }),
		compare(&wrong, "ports of Subnets", inWords(want.NAT.Subnets), func() (map[uint32]string, error) { return inWords(nat.Subnets), nil }),
		compare(&wrong, "members", want.Members, d.Members.List),
		compare(&wrong, "subnets", want.Subnets, d.Subnets.List),
		compare(&wrong, "routes", want.Routes, d.Routes.List),
		compare(&wrong, "next hops", want.Hops, d.Hops.List),
		compare(&wrong, "endpoints", want.Endpoints, d.Endpoints.List),
		compare(&wrong, "forwarders", want.Forwarders, d.Forwarders.List),
		compare(&wrong, "Services", servicesInWords(want.Services), func() (map[datapath.ServiceKey]string, error) {
			services, err := d.Services.List()
			return servicesInWords(services), err
		}),
		compare(&wrong, "nics", want.NICs, func() (map[uint32]datapath.NIC, error) {
			for key, nic := range nics {
				nic.IngressPolicy, nic.EgressPolicy = 0, 0                   // compared already
				nic.NoServices = nic.NoServices || want.NICs[key].NoServices // answers of Services that are no more are looked for on
				nics[key] = nic
			}
			return nics, nil
		}),
	)
	return wrong, err
}

// comparePolicies: each interface has the numbers of policies that say what its own should, and no others are in the tables.
func comparePolicies(tables *datapath.Policies, want desired.State, nics map[uint32]datapath.NIC) ([]string, error) {
	var wrong []string
	used := map[datapath.PolicyID]bool{}
	for ifindex, nic := range nics {
		policies := want.Policies[ifindex]
		for _, direction := range []struct {
			name   string
			number datapath.PolicyID
			want   *datapath.Policy
		}{{"ingress", nic.IngressPolicy, policies.Ingress}, {"egress", nic.EgressPolicy, policies.Egress}} {
			used[direction.number] = true
			right, err := tables.Is(direction.number, direction.want)
			if err != nil {
				return nil, err
			}
			if !right {
				wrong = append(wrong, fmt.Sprintf("policies: number %d, %s of interface %d, does not say what it should: %+v",
					direction.number, direction.name, ifindex, direction.want))
			}
		}
	}
	ids, err := tables.IDs()
	for _, id := range ids {
		if !used[id] {
			wrong = append(wrong, fmt.Sprintf("policies: number %d is left over", id))
		}
	}
	return wrong, err
}

// servicesInWords makes sets of backends comparable.
func servicesInWords(services map[datapath.ServiceKey]datapath.Service) map[datapath.ServiceKey]string {
	words := map[datapath.ServiceKey]string{}
	for key, service := range services {
		var backends []string
		for _, b := range service.Backends {
			backends = append(backends, netip.AddrPortFrom(b.Address, b.Port).String())
		}
		slices.Sort(backends)
		words[key] = fmt.Sprintf("%v for %s", slices.Compact(backends), service.Affinity)
	}
	return words
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

// linkPrefix begins the names of the links that a node's daemon makes for its host.
const linkPrefix = "mni"

// comparePins: each attachment's link has its program, and so have the host's veth, the vxlan device and the uplink: with tcx by a pinned
// link, with clsact by a filter.
func comparePins(n instance.Node, links map[string]int) (wrong []string, err error) {
	err = node.Run(n, func() error {
		want := datapath.Interfaces{Pods: slices.Collect(maps.Values(links))}
		for name, ifindex := range map[string]*int{linkPrefix + "h1": &want.HostPeer, linkPrefix + "vx": &want.VXLAN, underlay.NodeUplink: &want.Uplink} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("link %s: %v", name, err))
				continue
			}
			*ifindex = link.Attrs().Index
		}
		attached, err := datapath.CompareAttached(n.PinDir(), want)
		wrong = append(wrong, attached...)
		return err
	})
	return wrong, err
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
