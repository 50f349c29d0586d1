package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/daemon/desired"
	"github.com/mnicloud/mnicloud/network/datapath"
)

const (
	// wantInterval is how often the datapath is asked whether a spare block is in use.
	wantInterval = 100 * time.Millisecond
	// collectInterval is how often entries that timed out are removed.
	collectInterval = 10 * time.Second
	// keepUnneeded is how long a block is kept that nothing leaves by any more: Pods are replaced.
	keepUnneeded = 30 * time.Second
	// keepIdle is how long a block is kept that has no flow, beside the spare one.
	keepIdle = 2 * time.Minute
	// growSoon is the time within which the next growth is twice as large, up to mostGrowth.
	growSoon, mostGrowth = 3 * time.Second, 16
	// moreCandidates are tried for blocks that another node got first.
	moreCandidates = 16
)

// portBlocks claims this node's PortBlocks and gives them back. The API server's create is the lock. What it has is what the API server
// says, so that nothing is forgotten when the daemon dies anywhere; the datapath gives ports up before the object goes.
type portBlocks struct {
	api client.Client
	// known is what the watches have told, next is closed when they tell more.
	known      client.Reader
	next       func() <-chan struct{}
	input      func(context.Context) (desired.Input, error)
	programmer translator
	kick       func()
	claims     func(result string)
	log        *slog.Logger

	// pending are claimed and not told of by the watch yet, unneeded those that nothing leaves by, and since when.
	pending  map[string]*netv1.PortBlock
	unneeded map[string]time.Time
	// grown is when a gateway last got more, and how many.
	grown map[string]growth
	// short are gateways that had no free block.
	short map[string]bool

	idle desired.IdlePortBlocks

	mu sync.Mutex
	// returned are no more translated with; they are removed. Draining begin nothing new.
	returned, draining map[string]bool
}

type growth struct {
	at time.Time
	by int
}

// translator is what the programmer does for NATGateways. Tests have many nodes without a datapath.
type translator interface {
	natWants() (wants map[uint32]int, ready bool, err error)
	collectNAT() (map[datapath.PortBlock]int, error)
	attachments() []desired.Attachment
	sync(ctx context.Context) error
}

func newPortBlocks(
	api client.Client, known client.Reader, next func() <-chan struct{}, input func(context.Context) (desired.Input, error), p translator,
	kick func(), claims func(string), log *slog.Logger,
) *portBlocks {
	return &portBlocks{
		api: api, known: known, next: next, input: input, programmer: p, kick: kick, claims: claims, log: log,
		pending: map[string]*netv1.PortBlock{}, unneeded: map[string]time.Time{}, grown: map[string]growth{}, short: map[string]bool{}, returned: map[string]bool{},
	}
}

// leaving are the names of blocks that this node translates with no more, and of those with which it begins nothing new. A nil portBlocks
// has none.
func (k *portBlocks) leaving() (returned, draining map[string]bool) {
	if k == nil {
		return nil, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.returned), k.draining
}

// run keeps the node's blocks until ctx ends.
func (k *portBlocks) run(ctx context.Context) error {
	tick := time.NewTicker(wantInterval)
	defer tick.Stop()
	var collected time.Time
	changed := k.next()
	due := true
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		select {
		case <-changed:
			changed, due = k.next(), true
		default:
		}
		wants, ready, err := k.programmer.natWants()
		if err != nil {
			k.log.Error("read which ports are wanted", "error", err)
		}
		if !ready {
			continue
		}
		if time.Since(collected) >= collectInterval {
			if err := k.collect(ctx); err != nil && ctx.Err() == nil {
				k.log.Error("collect flows of NATGateways", "error", err)
				due = true
			}
			collected = time.Now()
		}
		if !due && len(wants) == 0 && len(k.unneeded) == 0 {
			continue
		}
		due = false
		if err := k.step(ctx, wants); err != nil && ctx.Err() == nil {
			k.log.Error("not all ports of NATGateways could be claimed or given back; trying again", "error", err)
			due = true
			select {
			case <-ctx.Done():
			case <-time.After(retryInterval):
			}
		}
	}
}

// collect removes flows that ended, and gives blocks back that have had none for a while.
func (k *portBlocks) collect(ctx context.Context) error {
	if idle, err := k.nothingToDo(ctx); err != nil || idle {
		return err
	}
	live, err := k.programmer.collectNAT()
	if err != nil {
		return err
	}
	in, err := k.input(ctx)
	if err != nil {
		return err
	}
	back := k.idle.Look(in, live, time.Now(), keepIdle)
	k.mu.Lock()
	changed := !maps.Equal(k.draining, k.idle.Draining())
	k.draining = maps.Clone(k.idle.Draining())
	k.mu.Unlock()
	if changed {
		k.kick()
	}
	return k.giveBack(ctx, back)
}

// nothingToDo tells that there is no NATGateway and no block of this node's.
func (k *portBlocks) nothingToDo(ctx context.Context) (bool, error) {
	var gateways netv1.NATGatewayList
	var blocks netv1.PortBlockList
	for _, list := range []client.ObjectList{&gateways, &blocks} {
		if err := k.known.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("list %T: %w", list, err)
		}
	}
	return len(gateways.Items)+len(blocks.Items) == 0, nil
}

// step claims what is needed and gives back what is not. Wants are the Subnets whose spare block is in use, by VNI, and how many they had.
func (k *portBlocks) step(ctx context.Context, wants map[uint32]int) error {
	if idle, err := k.nothingToDo(ctx); err != nil || idle {
		return err
	}
	in, err := k.input(ctx)
	if err != nil {
		return err
	}
	in.Attachments = k.programmer.attachments()
	k.settle(&in)
	plan := desired.PlanPortBlocks(in, k.grow(in, wants))
	return errors.Join(k.claimAll(ctx, in, plan.Claim), k.giveBack(ctx, plan.Return, k.longUnneeded(plan.Unneeded), givenBack(in)))
}

// givenBack are this node's blocks that it translates with no more and that are there still, as far as is known: their removal may have
// failed.
func givenBack(in desired.Input) []*netv1.PortBlock {
	var back []*netv1.PortBlock
	for _, b := range desired.OwnPortBlocks(in) {
		if in.GivenBack[b.Name] {
			back = append(back, b)
		}
	}
	return back
}

// settle adds to the input what was claimed and is not told of yet, and forgets what has been told or is gone.
func (k *portBlocks) settle(in *desired.Input) {
	known := map[string]bool{}
	for i := range in.PortBlocks {
		known[in.PortBlocks[i].Name] = true
	}
	maps.DeleteFunc(k.pending, func(name string, _ *netv1.PortBlock) bool { return known[name] })
	blocks := append([]netv1.PortBlock{}, in.PortBlocks...)
	for _, b := range k.pending {
		blocks = append(blocks, *b)
	}
	in.PortBlocks = blocks
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.returned, func(name string, _ bool) bool { return !known[name] })
}

// grow says how many more blocks gateways need whose last is in use.
func (k *portBlocks) grow(in desired.Input, wants map[uint32]int) map[string]int {
	if len(wants) == 0 {
		return nil
	}
	have := map[string]int{}
	for _, b := range desired.OwnPortBlocks(in) {
		if !in.GivenBack[b.Name] && !in.Draining[b.Name] {
			have[b.Spec.NATGateway]++
		}
	}
	more := map[string]int{}
	for vni, g := range desired.Serving(in) {
		had, wanted := wants[vni]
		if !wanted || had < have[g.Name] || more[g.Name] > 0 {
			continue // it has more by now
		}
		by := 1
		if last := k.grown[g.Name]; time.Since(last.at) < growSoon {
			by = min(2*last.by, mostGrowth)
		}
		more[g.Name], k.grown[g.Name] = by, growth{time.Now(), by}
	}
	return more
}

func (k *portBlocks) claimAll(ctx context.Context, in desired.Input, claim map[string]int) error {
	var errs []error
	for i := range in.NATGateways {
		if g := &in.NATGateways[i]; claim[g.Name] > 0 {
			errs = append(errs, k.claim(ctx, in, g, claim[g.Name]))
		}
	}
	return errors.Join(errs...)
}

// errBehind says that other nodes were first to all blocks that seemed free: what they have is not told of yet.
var errBehind = errors.New("other nodes were first to the blocks that seemed free")

// claim makes blocks of a gateway this node's, as many as there are.
func (k *portBlocks) claim(ctx context.Context, in desired.Input, gateway *netv1.NATGateway, n int) error {
	candidates := desired.FreePortBlocks(in, gateway, n+moreCandidates)
	all := len(candidates) < n+moreCandidates // that are free, as far as is known
	for _, b := range candidates {
		if n == 0 {
			break
		}
		err := k.api.Create(ctx, b)
		switch {
		case apierrors.IsAlreadyExists(err): // another node was first
			k.claims("taken")
		case err != nil:
			k.claims("error")
			return fmt.Errorf("claim PortBlock %s: %w", b.Name, err)
		default:
			k.claims("claimed")
			k.pending[b.Name] = b
			n--
		}
	}
	if n > 0 && !all {
		return fmt.Errorf("claim %d PortBlocks of NATGateway %s: %w", n, gateway.Name, errBehind)
	}
	if n > 0 {
		k.claims("none")
		if !k.short[gateway.Name] {
			k.log.Warn("all ports of a NATGateway's addresses are taken: give it another ExternalIP", "natGateway", gateway.Name)
		}
	}
	k.short[gateway.Name] = n > 0
	return nil
}

// longUnneeded are the blocks that nothing has left by for a while.
func (k *portBlocks) longUnneeded(blocks []*netv1.PortBlock) []*netv1.PortBlock {
	since := map[string]time.Time{}
	var long []*netv1.PortBlock
	for _, b := range blocks {
		since[b.Name] = time.Now()
		if at, ok := k.unneeded[b.Name]; ok {
			since[b.Name] = at
		}
		if time.Since(since[b.Name]) >= keepUnneeded {
			long = append(long, b)
		}
	}
	k.unneeded = since
	return long
}

// giveBack removes blocks: first from the datapath, with the flows that have their ports, then their objects.
func (k *portBlocks) giveBack(ctx context.Context, lists ...[]*netv1.PortBlock) error {
	var all []*netv1.PortBlock
	k.mu.Lock()
	for _, list := range lists {
		for _, b := range list {
			all = append(all, b)
			k.returned[b.Name] = true
		}
	}
	k.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	if err := k.programmer.sync(ctx); err != nil {
		return err
	}
	var errs []error
	for _, b := range all {
		err := k.api.Delete(ctx, b, client.Preconditions{UID: &b.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("give PortBlock %s back: %w", b.Name, err))
			continue
		}
		delete(k.pending, b.Name)
	}
	return errors.Join(errs...)
}
