package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/daemon/desired"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// referee knows which node translates with which block.
type referee struct {
	mu      sync.Mutex
	holders map[string]string // nodes, by the block's name
	faults  []string
}

// uses notes that a node translates with these blocks, and no others, from now on.
func (r *referee) uses(node string, blocks map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, holder := range r.holders {
		if holder == node && !blocks[name] {
			delete(r.holders, name)
		}
	}
	for name := range blocks {
		if other := r.holders[name]; other != "" && other != node {
			r.faults = append(r.faults, fmt.Sprintf("%s is %s's and %s's", name, other, node))
		}
		r.holders[name] = node
	}
}

// unreliable is a client whose writes fail now and then, before or after they were done.
type unreliable struct {
	client.Client
	r *rand.Rand
}

var errBroken = errors.New("the connection broke")

func (u unreliable) write(do func() error) error {
	switch u.r.IntN(12) {
	case 0:
		return errBroken
	case 1:
		return errors.Join(do(), errBroken)
	}
	return do()
}

func (u unreliable) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	return u.write(func() error { return u.Client.Create(ctx, o, options...) })
}

func (u unreliable) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	return u.write(func() error { return u.Client.Delete(ctx, o, options...) })
}

// racer is a node that claims blocks as the daemon does, without a datapath. What it knows of the others' is as old as its last look.
type racer struct {
	*portBlocks
	api     client.Client
	r       *rand.Rand
	name    string
	view    desired.Input
	referee *referee
	counts  map[string]int
}

func newRacer(api client.Client, world desired.Input, i int, seed uint64, ref *referee) *racer {
	r := &racer{api: api, r: rand.New(rand.NewPCG(seed, uint64(i))), name: fmt.Sprintf("racer-%d", i), view: world, referee: ref, counts: map[string]int{}}
	r.view.Node = r.name
	r.view.Interfaces = []netv1.NetworkInterface{{
		Spec:   netv1.NetworkInterfaceSpec{Node: r.name, Pod: &netv1.PodReference{Name: r.name}},
		Status: netv1.NetworkInterfaceStatus{VNI: world.Subnets[0].Status.VNI, VPCID: world.Subnets[0].Status.VPCID},
	}}
	r.restart()
	return r
}

// restart forgets all but what the programs have.
func (r *racer) restart() {
	r.portBlocks = newPortBlocks(
		unreliable{r.api, r.r}, r.api, nil, r.input, r, func() {}, func(result string) { r.counts[result]++ }, slog.New(slog.DiscardHandler),
	)
}

func (r *racer) input(context.Context) (desired.Input, error) {
	in := r.view
	in.GivenBack, in.Draining = r.leaving()
	return in, nil
}

// look is what a watch would have told.
func (r *racer) look(ctx context.Context) error {
	var list netv1.PortBlockList
	err := r.api.List(ctx, &list)
	if err == nil {
		r.view.PortBlocks = list.Items
	}
	return err
}

// own are the racer's blocks as it knows.
func (r *racer) own() map[string]*netv1.PortBlock {
	in, _ := r.input(context.Background())
	own := map[string]*netv1.PortBlock{}
	for _, b := range desired.OwnPortBlocks(in) {
		if !in.GivenBack[b.Name] {
			own[b.Name] = b
		}
	}
	return own
}

func (r *racer) sync(context.Context) error {
	blocks := map[string]bool{}
	for name := range r.own() {
		blocks[name] = true
	}
	r.referee.uses(r.name, blocks)
	return nil
}

func (r *racer) natWants() (map[uint32]int, bool, error)         { return nil, true, nil }
func (r *racer) collectNAT() (map[datapath.PortBlock]int, error) { return nil, nil }
func (r *racer) attachments() []desired.Attachment               { return nil }

// wants has it do what is to be done while its last block is in use.
func (r *racer) wants(ctx context.Context) error {
	return r.step(ctx, map[uint32]int{r.view.Subnets[0].Status.VNI: len(r.own())})
}

// acts does one thing, as chance will have it.
func (r *racer) acts(ctx context.Context) error {
	switch k := r.r.IntN(20); {
	case k < 8:
		if err := r.look(ctx); err != nil {
			return err
		}
		return r.sync(ctx)
	case k < 15: // its last block is in use
		return r.wants(ctx)
	case k < 18:
		for _, b := range r.own() {
			return r.giveBack(ctx, []*netv1.PortBlock{b})
		}
	case k < 19: // the daemon's watch begins with what the API server has
		r.restart()
		if err := r.look(ctx); err != nil {
			return err
		}
		return r.sync(ctx)
	default: // the node is cut off and goes on; the controller releases its blocks; then it hears of that
		var list netv1.PortBlockList
		if err := r.api.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			b := &list.Items[i]
			if b.Spec.Node != r.name || b.Spec.ReleasedAt != nil {
				continue
			}
			base := b.DeepCopy()
			now := metav1.NowMicro()
			b.Spec.ReleasedAt = &now
			if err := client.IgnoreNotFound(r.api.Patch(ctx, b, client.MergeFrom(base))); err != nil {
				return err
			}
		}
		if r.r.IntN(2) == 0 {
			r.restart()
		}
		if err := r.look(ctx); err != nil {
			return err
		}
		return r.sync(ctx)
	}
	return nil
}

// isTriedAgain tells whether nothing went wrong but what goes wrong in a race, after which the daemon tries again.
func isTriedAgain(err error) bool {
	return err == nil || errors.Is(err, errBroken) || errors.Is(err, errBehind)
}

// racing is an API server with a NATGateway that has one address.
func racing(t *testing.T) (api client.Client, world desired.Input) {
	c := newCloud(t, 0)
	t.Cleanup(func() { require.NoError(t, c.client.DeleteAllOf(context.Background(), &netv1.PortBlock{})) })
	front := c.subnet("front", "10.1.0.0/24", 1001, 1001)
	world.Subnets = []netv1.Subnet{*front}
	world.NATGateways = []netv1.NATGateway{*c.natGateway("gateway", front, "203.0.113.5")}
	return c.client, world
}

// Many nodes claim, give back, die and are lost, with a view of the others' blocks that is behind and writes that fail on the way: no block
// ever has two holders; and in the end each node has a block, or all are taken and it says so.
func TestHoweverManyNodesRaceForBlocksNoneHasTwoHolders(t *testing.T) {
	const racers, rounds, seed = 16, 25, 1
	api, world := racing(t)
	ref := &referee{holders: map[string]string{}}
	var all []*racer
	var running sync.WaitGroup
	failures := make([]error, racers)
	for i := range racers {
		all = append(all, newRacer(api, world, i, seed, ref))
	}
	for i, r := range all {
		running.Go(func() {
			for range rounds {
				if err := r.acts(t.Context()); !isTriedAgain(err) {
					failures[i] = err
					return
				}
			}
		})
	}
	running.Wait()
	require.NoError(t, errors.Join(failures...))
	require.Empty(t, ref.faults)

	// Each wants more than there are, hears of what changed, and tries again after what failed, as the daemon does.
	var list netv1.PortBlockList
	ended := func() bool {
		require.NoError(t, api.List(t.Context(), &list))
		return len(list.Items) == allBlocks && !slices.ContainsFunc(all, func(r *racer) bool { return !r.short["gateway"] })
	}
	for tries := 0; tries < 20 && !ended(); tries++ {
		for i, r := range all {
			running.Go(func() {
				err := r.look(t.Context())
				for err == nil {
					_ = r.sync(t.Context())
					if err = r.wants(t.Context()); err == nil || !isTriedAgain(err) {
						break
					}
					err = r.look(t.Context())
				}
				failures[i] = err
			})
		}
		running.Wait()
		require.NoError(t, errors.Join(failures...))
	}
	require.True(t, ended(), "%d blocks are taken", len(list.Items))
	counts := map[string]int{}
	for _, r := range all {
		require.NoError(t, r.look(t.Context()))
		require.NoError(t, r.sync(t.Context()))
		for result, n := range r.counts {
			counts[result] += n
		}
		require.True(t, len(r.own()) > 0 || r.short["gateway"], "%s has no block, and does not say that all are taken", r.name)
	}
	require.Empty(t, ref.faults)
	require.Len(t, ref.holders, allBlocks, "each has one holder")
	for i := range list.Items {
		require.Nil(t, list.Items[i].Spec.ReleasedAt, "who hears that its block was released gives it back")
	}
	t.Logf("claims: %v", counts)
	for _, result := range []string{"claimed", "taken", "none", "error"} {
		require.Positive(t, counts[result], "it never came to %q", result)
	}
}

// A node that knows nothing of the others' blocks yet is not told that there are none: it tries again when it knows.
func TestANodeWhoseViewIsBehindDoesNotTakeAllForTaken(t *testing.T) {
	api, world := racing(t)
	ref := &referee{holders: map[string]string{}}
	r := newRacer(api, world, 0, 1, ref)
	r.portBlocks.api = api
	for _, b := range desired.FreePortBlocks(r.view, &r.view.NATGateways[0], 1+moreCandidates) {
		b.Spec.Node = "another"
		require.NoError(t, api.Create(t.Context(), b))
	}
	require.Error(t, r.step(t.Context(), nil), "it is to be tried again")
	require.False(t, r.short["gateway"])
	require.Zero(t, r.counts["none"])
	require.NoError(t, r.look(t.Context()))
	require.NoError(t, r.step(t.Context(), nil))
	require.NoError(t, r.look(t.Context()))
	require.Len(t, r.own(), 1)
}
