package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
)

// The tables of a datapath. The last two parameters are the kernel's forms and of no concern to callers.
type (
	// SubnetTable holds Subnets by their VNI.
	SubnetTable = Table[uint32, Subnet, uint32, bpfSubnet]
	// NICTable holds interfaces of this node by the ifindex of their host side.
	NICTable = Table[uint32, NIC, uint32, bpfNic]
	// EndpointTable says where addresses are.
	EndpointTable = Table[EndpointKey, Endpoint, bpfEndpointKey, bpfEndpoint]
	// RouteTable holds the routes of VPCs.
	RouteTable = Table[RouteKey, Route, bpfRouteKey, bpfRoute]
	// HopTable finds interfaces of this node that send on what others sent.
	HopTable = Table[HopKey, Hop, bpfHopKey, bpfHop]
	// MemberTable holds the members of the network by their address on the underlay.
	MemberTable = Table[netip.Addr, Member, bpfAddress, bpfMember]
	// ExternalTable says what has external addresses.
	ExternalTable = Table[netip.Prefix, External, bpfExternalKey, bpfExternal]
	// FloatingTable has the external addresses of interfaces.
	FloatingTable = Table[FloatingKey, Floating, bpfFloatingKey, bpfFloating]
	// ForwarderTable has the members that send on what others sent.
	ForwarderTable = Table[ForwarderKey, Forwarder, bpfForwarderKey, bpfForwarder]
)

// Mode is how programs are attached.
type Mode string

const (
	// ModeTCX attaches with pinned links (Linux 6.6 and later).
	ModeTCX Mode = "tcx"
	// ModeClsact attaches with filters of a clsact qdisc.
	ModeClsact Mode = "clsact"
)

// Datapath is the loaded programs and open maps of one node.
type Datapath struct {
	// Subnets by VNI: those that interfaces of this node, or peers of theirs, are in.
	Subnets *SubnetTable
	// NICs by the ifindex of their host side: this node's interfaces.
	NICs *NICTable
	// Endpoints: where the addresses are that interfaces of this node may talk to.
	Endpoints *EndpointTable
	// Routes of Subnets: to the others of their VPC, and by their route tables.
	Routes *RouteTable
	// Hops are this node's interfaces that other members may send to as a next hop.
	Hops *HopTable
	// Members by underlay address: whose VXLAN is accepted.
	Members *MemberTable
	// Forwarders are members that may send as others in a VPC.
	Forwarders *ForwarderTable
	// Externals say what has the external addresses: pools' ranges, which nothing has, and within them single addresses. Every node
	// has all of them.
	Externals *ExternalTable
	// Floatings are the external addresses of interfaces, of VPCs that have one here.
	Floatings *FloatingTable
	// NAT is how interfaces leave by NATGateways.
	NAT *NAT
	// Services and their backends.
	Services *Services
	// Conntrack is the flows through Services.
	Conntrack *Conntrack
	// Flows are what policies have let through, as interfaces of this node see it.
	Flows *Flows
	// Openings are connections to infrastructure addresses of interfaces of this node.
	Openings *Openings
	// Policies are what interfaces may send and what may reach them.
	Policies *Policies
	// Drops counts dropped packets.
	Drops *Drops
	// Deliveries counts packets that were given to interfaces.
	Deliveries *Deliveries

	config     Config
	mode       Mode
	collection *ebpf.Collection
	// former are the tables of other layouts, until Replace.
	former []*former
}

// Load opens the maps pinned under the configuration's PinPath, makes those that are missing, and loads the programs
// with the configuration compiled in. It changes nothing that is attached. When there are tables of another layout, another
// version's, its own begin with what those have; the attached programs keep theirs until Replace.
func Load(config Config) (*Datapath, error) { return load(config, loadBpf, false) }

// LoadObject is Load of the programs and tables of another version's object file. Its flows cannot be listed.
func LoadObject(config Config, object func() (*ebpf.CollectionSpec, error)) (*Datapath, error) {
	return load(config, object, false)
}

// load loads the programs as they are attached, or with tracing on, to be run without an interface.
func load(config Config, object func() (*ebpf.CollectionSpec, error), tracing bool) (*Datapath, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("datapath configuration: %w", err)
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the limit of locked memory (needs CAP_SYS_RESOURCE before Linux 5.11): %w", err)
	}
	spec, err := object()
	if err != nil {
		return nil, fmt.Errorf("read the embedded object file: %w", err)
	}
	if err := config.apply(spec); err != nil {
		return nil, err
	}
	if err := spec.Variables[bpfVarTracing].Set(tracing); err != nil {
		return nil, fmt.Errorf("constant %s: %w", bpfVarTracing, err)
	}
	own := filepath.Join(mapsDir(config.PinPath), layoutOf(spec))
	if err := makeFolders(config.PinPath, own); err != nil {
		return nil, fmt.Errorf("make the pin folder (is a bpffs mounted there?): %w", err)
	}
	maps, err := openMaps(spec, own)
	if err != nil {
		return nil, err
	}
	defer closeMaps(maps)
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	if err != nil {
		return nil, fmt.Errorf("load the programs: %w", err)
	}
	d := &Datapath{config: config, mode: ModeTCX, collection: collection}
	if config.ForceClsact || !haveTCX(d.program(bpfProgPodEgress)) {
		d.mode = ModeClsact
	}
	d.openTables()
	if err := errors.Join(d.openFormer(spec, own), d.begin(own)); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Datapath) openTables() {
	m := d.collection.Maps
	d.Subnets = newTable(m[bpfMapSubnets], bpfMapSubnets, uint32Codec(), subnetCodec())
	d.NICs = newTable(m[bpfMapNics], bpfMapNics, uint32Codec(), nicCodec())
	d.Endpoints = newTable(m[bpfMapEndpoints], bpfMapEndpoints, endpointKeyCodec(), endpointCodec())
	d.Routes = newTable(m[bpfMapRoutes], bpfMapRoutes, routeKeyCodec(), routeCodec())
	d.Hops = newTable(m[bpfMapHops], bpfMapHops, hopKeyCodec(), hopCodec())
	d.Members = newTable(m[bpfMapMembers], bpfMapMembers, addrCodec(), memberCodec())
	d.Forwarders = newTable(m[bpfMapForwarders], bpfMapForwarders, forwarderKeyCodec(), forwarderCodec())
	d.Externals = newTable(m[bpfMapExternals], bpfMapExternals, prefixCodec(), externalCodec())
	d.Floatings = newTable(m[bpfMapFloatings], bpfMapFloatings, floatingKeyCodec(), floatingCodec())
	d.NAT = newNAT(m)
	d.Conntrack = &Conntrack{m: m[bpfMapConntracks]}
	d.Flows = &Flows{m: m[bpfMapFlows]}
	d.Openings = &Openings{m: m[bpfMapAliasFlows]}
	d.Services = newServices(m[bpfMapServices], m[bpfMapBackends], d.Conntrack)
	d.Policies = newPolicies(m[bpfMapPolicyPeers], m[bpfMapPolicyRules], m[bpfMapPolicyNumbers])
	d.Drops = &Drops{m: m[bpfMapDrops]}
	d.Deliveries = &Deliveries{m: m[bpfMapDeliveries]}
}

// Mode says how programs are attached.
func (d *Datapath) Mode() Mode { return d.mode }

func (d *Datapath) program(name string) *ebpf.Program { return d.collection.Programs[name] }

// Close releases this process's references. What is pinned and attached stays and works on.
func (d *Datapath) Close() error {
	d.collection.Close()
	for _, f := range d.former {
		f.close()
	}
	return nil
}

// Remove detaches the links of a datapath and deletes its pins. Programs and maps go with them; clsact filters go with
// their interfaces, but that of the uplink, which it looks for in the calling thread's network namespace.
func Remove(pinPath string) error {
	if err := removeUplinkFilter(pinPath); err != nil {
		return err
	}
	links, err := os.ReadDir(linksDir(pinPath))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list the pinned links: %w", err)
	}
	for _, l := range links {
		if err := removeLink(filepath.Join(linksDir(pinPath), l.Name())); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(pinPath); err != nil {
		return fmt.Errorf("remove the datapath's pins: %w", err)
	}
	return nil
}

func mapsDir(pinPath string) string  { return filepath.Join(pinPath, "maps") }
func linksDir(pinPath string) string { return filepath.Join(pinPath, "links") }

// haveTCX asks the kernel whether it has tcx, by an attachment to no interface.
func haveTCX(program *ebpf.Program) bool {
	_, err := link.AttachTCX(link.TCXOptions{Interface: 1<<31 - 1, Program: program, Attach: ebpf.AttachTCXIngress})
	return !errors.Is(err, ebpf.ErrNotSupported)
}
