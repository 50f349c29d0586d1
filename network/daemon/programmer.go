package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/daemon/attachment"
	"github.com/mnicloud/mnicloud/network/daemon/desired"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// programmer brings the datapath to the desired state. One lock makes reading the input, computing and writing one step, so
// that an old state never overwrites a newer one.
type programmer struct {
	// input reads what the maps depend on beside the attachments.
	input func(context.Context) (desired.Input, error)
	// kick asks for a sync soon.
	kick func()
	log  *slog.Logger
	// pods tells that this member may have Pods. Only such a member takes what comes from outside.
	pods bool

	mu       sync.Mutex
	datapath *datapath.Datapath
	attached map[string]desired.Attachment
	// links are the names, in metrics, of interfaces that have a program and are no attachment's, by ifindex.
	links map[int]string
	// vpcs are those whose entries are in the maps.
	vpcs map[uint32]bool
	// unwritten is why interfaces are closed whose policies could not be written, by ifindex.
	unwritten map[uint32]string
	retrying  bool
	// committed is set when the maps are complete and the programs of this process are attached. Until then those of the
	// process before work on with their maps.
	committed bool
}

// Attach implements attachment.Datapath. What the attachment needs is written at once, the rest at the next sync.
func (p *programmer) Attach(ctx context.Context, record attachment.Record, link netlink.Link) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := desired.Attachment{Record: record, Ifindex: link.Attrs().Index}
	p.attached[record.Key()] = a
	if !p.committed {
		return nil
	}
	defer p.kick()
	state, err := p.desired(ctx)
	if err != nil {
		return err
	}
	p.number(state)
	p.keepAnswers(state)
	newVPC := !p.vpcs[a.Interface.VPCID]
	if err := p.set(state.Of(a, newVPC)); err != nil {
		return err
	}
	p.vpcs[a.Interface.VPCID] = true
	if _, served := state.NAT.Subnets[a.Interface.VNI]; served {
		if _, err := p.datapath.NAT.Sync(state.NAT); err != nil {
			return err
		}
	}
	return p.datapath.AttachPod(a.Ifindex)
}

// Detach implements attachment.Datapath. An endpoint is removed only when it is this attachment's; an older attachment of the
// interface that is still there gets its entries back at the next sync.
func (p *programmer) Detach(_ context.Context, record attachment.Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, ok := p.attached[record.Key()]
	if ok && p.datapath == nil {
		delete(p.attached, record.Key()) // its entries go with the first sync
		return nil
	}
	if !ok {
		return nil // its link was never made, or is gone: its entries go with the next sync
	}
	var errs []error
	for key := range desired.Local(a).Endpoints {
		endpoint, exists, err := p.datapath.Endpoints.Get(key)
		if err == nil && exists && endpoint.Ifindex == uint32(a.Ifindex) {
			err = p.datapath.Endpoints.Delete(key)
		}
		errs = append(errs, err)
	}
	errs = append(errs, p.datapath.NICs.Delete(uint32(a.Ifindex)), p.datapath.DetachPod(a.Ifindex))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	delete(p.attached, record.Key())
	p.kick()
	return nil
}

// desired computes the state of all maps now.
func (p *programmer) desired(ctx context.Context) (desired.State, error) {
	in, err := p.input(ctx)
	if err != nil {
		return desired.State{}, err
	}
	in.Attachments = p.list()
	return desired.Compute(in), nil
}

// attachments are those of this node.
func (p *programmer) attachments() []desired.Attachment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.list()
}

func (p *programmer) list() []desired.Attachment {
	return slices.Collect(maps.Values(p.attached))
}

// set writes entries and deletes nothing. Interfaces come last: with them an attachment starts to work.
func (p *programmer) set(s desired.State) error {
	var errs []error
	for k, v := range s.Subnets {
		errs = append(errs, p.datapath.Subnets.Set(k, v))
	}
	for k, v := range s.Routes {
		errs = append(errs, p.datapath.Routes.Set(k, v))
	}
	for k, v := range s.Endpoints {
		errs = append(errs, p.datapath.Endpoints.Set(k, v))
	}
	for k, v := range s.Forwarders {
		errs = append(errs, p.datapath.Forwarders.Set(k, v))
	}
	for k, v := range s.Hops {
		errs = append(errs, p.datapath.Hops.Set(k, v))
	}
	for k, v := range s.Floatings {
		errs = append(errs, p.datapath.Floatings.Set(k, v))
	}
	for k, v := range s.NICs {
		errs = append(errs, p.datapath.NICs.Set(k, v))
	}
	return errors.Join(errs...)
}

// sync makes all maps what they should be. In steady state it writes nothing.
func (p *programmer) sync(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.syncLocked(ctx)
}

func (p *programmer) syncLocked(ctx context.Context) error {
	state, err := p.desired(ctx)
	if err != nil {
		return err
	}
	var errs []error
	total := 0
	note := func(table string, changes int, err error) {
		total += changes
		if err != nil {
			errs = append(errs, fmt.Errorf("map of %s: %w", table, err))
		}
	}
	d := p.datapath
	changes, err := d.Subnets.Sync(state.Subnets)
	note("Subnets", changes, err)
	changes, err = d.Routes.Sync(state.Routes)
	note("routes", changes, err)
	changes, err = d.Endpoints.Sync(state.Endpoints)
	note("endpoints", changes, err)
	changes, err = d.Members.Sync(state.Members) // what has an endpoint is taken for one, so of who goes those go first
	note("members", changes, err)
	changes, err = d.Forwarders.Sync(state.Forwarders)
	note("forwarders", changes, err)
	changes, err = d.Hops.Sync(state.Hops)
	note("next hops", changes, err)
	changes, err = d.Externals.Sync(state.Externals)
	note("external addresses", changes, err)
	changes, err = d.Floatings.Sync(state.Floatings)
	note("FloatingIPs", changes, err)
	changes, err = d.NAT.Sync(state.NAT)
	note("NATGateways", changes, err)
	p.number(state)
	p.keepAnswers(state)
	changes, err = d.NICs.Sync(state.NICs)
	note("interfaces", changes, err)
	if err == nil { // no interface has an old one any more
		changes, err = d.Policies.Collect(policiesOf(state))
		note("policies", changes, err)
		changes, err = d.Services.Sync(state.Services) // interfaces look for their answers by now
		note("Services", changes, err)
	}
	if total > 0 {
		p.log.Debug("maps changed", "entries", total)
	}
	p.vpcs = map[uint32]bool{netv1.DefaultVPCID: true}
	for _, nic := range state.NICs { // of their peers not all is there
		p.vpcs[nic.VPCID] = true
	}
	return errors.Join(errs...)
}

// prepare takes a datapath, which may replace one with other constants. Nothing is written or attached before commit.
func (p *programmer) prepare(d *datapath.Datapath, links map[int]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.datapath != nil {
		if err := p.datapath.Close(); err != nil {
			p.log.Warn("close the datapath before", "error", err)
		}
	}
	p.datapath, p.links, p.committed = d, links, false
}

// commit completes the maps and then puts this process's programs everywhere in place of those before.
func (p *programmer) commit(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.datapath
	if err := p.syncLocked(ctx); err != nil {
		return err
	}
	errs := []error{d.Replace(p.attachAll)}
	if collected, err := d.CollectLinks(); err != nil {
		errs = append(errs, err)
	} else if collected > 0 {
		p.log.Info("removed pins of links that are gone", "count", collected)
	}
	p.committed = true
	return errors.Join(errs...)
}

// attachAll puts this process's programs everywhere.
func (p *programmer) attachAll() error {
	err := errors.Join(p.datapath.AttachHost(), p.datapath.AttachVXLAN())
	if p.pods {
		err = errors.Join(err, p.datapath.AttachUplink())
	}
	for _, a := range p.attached {
		if err := p.datapath.AttachPod(a.Ifindex); err != nil {
			// Its link may be going just now; the others must not wait.
			p.log.Warn("attach the program of a Pod", "pod", a.Interface.Pod, "link", a.HostLink, "error", err)
		}
	}
	return err
}
