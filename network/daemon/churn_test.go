package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/network/plugin/protocol"
	"github.com/mnicloud/mnicloud/test/isolate"
)

// sandbox is another sandbox of the same Pod, as a runtime makes one after an ADD that failed or a sandbox that ended.
func (p *pod) sandbox(number int) *pod {
	again := *p
	again.id, again.netns = fmt.Sprintf("sandbox-%s-%d", p.name, number), isolate.Netns(p.node.cloud.t)
	return &again
}

// end removes the sandbox's namespace, as containerd does: whoever still has it open, as a daemon that is being killed may, keeps it a
// moment longer.
func (p *pod) end() error {
	return errors.Join(p.netns.Close(), unix.Unmount(p.netns.Path(), unix.MNT_DETACH), os.Remove(p.netns.Path()))
}

// churn is what a runtime does for one Pod until ctx ends, at a daemon that may die at any moment: it attaches a sandbox, detaches it,
// removes its namespace, and begins with the next one. An ADD that fails is tried again, or given up with a DEL; a DEL is tried until
// it succeeds. So many commands as the runtime's channel has room run at once. In the end the Pod is attached, or not; the number is of commands that failed.
func (p *pod) churn(ctx context.Context, runtime chan struct{}, random *rand.Rand, attached bool) (last *pod, failed int, err error) {
	deadline := time.Now().Add(4 * patience)
	command := func(do func() error) error {
		runtime <- struct{}{}
		defer func() { <-runtime }()
		return do()
	}
	retry := func(what string, err error) error {
		failed++
		if time.Now().After(deadline) {
			return fmt.Errorf("%s of %s does not succeed: %w", what, p.name, err)
		}
		<-time.After(10 * moment) // a runtime waits longer
		return nil
	}
	enough := func() bool {
		select {
		case <-ctx.Done():
			return true
		default:
			return false
		}
	}
	for number := 0; ; number++ {
		s := p.sandbox(number)
		add := func() error { _, err := s.add(); return err }
		err := command(add)
		for err != nil && random.IntN(2) == 0 {
			if err := retry("ADD", err); err != nil {
				return nil, failed, err
			}
			err = command(add)
		}
		if err == nil && attached && enough() {
			return s, failed, nil
		}
		if err != nil {
			if err := retry("ADD", err); err != nil {
				return nil, failed, err
			}
		}
		for err := command(s.del); err != nil; err = command(s.del) {
			if err := retry("DEL", err); err != nil {
				return nil, failed, err
			}
		}
		if err := s.end(); err != nil {
			return nil, failed, err
		}
		if !attached && enough() {
			return s, failed, nil
		}
	}
}

// Whenever the daemon dies, between any two steps of an ADD or a DEL, what the runtime tries again comes to the same end: a Pod that is
// attached is whole and answers, of one that is not nothing is left.
func TestADaemonKilledDuringAddsAndDelsConverges(t *testing.T) {
	const pods, kills, seed, atOnce = 30, 12, 1, 4
	c := newCloud(t, 1)
	n := c.nodes[0]
	n.options.ExtraHosts = []netip.Addr{netip.MustParseAddr(machineAddress)} // it reads the metrics
	n.start()
	n.awaitReady()
	n.usePlugin(buildPlugin(t))
	red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
	ctx, quiet := context.WithCancel(t.Context())
	defer quiet()
	var runtime errgroup.Group
	room := make(chan struct{}, atOnce)
	last, failed := make([]*pod, pods), make([]int, pods)
	for i := range pods {
		p := n.pod(fmt.Sprint("pod-", i), red, fmt.Sprintf("10.1.0.%d", i+5), fmt.Sprintf("198.18.0.%d", i+5))
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		runtime.Go(func() (err error) {
			last[i], failed[i], err = p.churn(ctx, room, random, i%2 == 0)
			return err
		})
	}
	random := rand.New(rand.NewPCG(seed, pods))
	for range kills {
		<-time.After(time.Duration(random.IntN(300)) * time.Millisecond) // at any moment
		n.stop(syscall.SIGKILL)
		n.start()
		n.awaitReady()
	}
	quiet()
	require.NoError(t, runtime.Wait())
	failures := 0
	for _, count := range failed {
		failures += count
	}
	require.Positive(t, failures, "the daemon was killed while it worked")

	queued := func() int {
		queue, err := protocol.Queue(n.options.QueueDir)
		require.NoError(t, err)
		return len(queue)
	}
	require.Eventually(t, func() bool { return queued() == 0 }, patience, moment, "the queue is done")
	require.Len(t, n.links(), pods/2)
	require.Contains(t, n.get("/metrics"), fmt.Sprintf("\nmni_netd_attachments %d\n", pods/2))
	sandboxes := 0
	for i := 0; i < pods; i += 2 {
		require.NoError(t, last[i].check(), last[i].id)
		c.answer(last[i].inside, last[i].name)
		from := last[(i+2)%pods]
		c.eventually(from.inside, last[i].nic.Status.Address, fmt.Sprintf("%s to %s: hello", last[i].name, from.nic.Status.Address))
	}
	for _, p := range last {
		var number int
		_, err := fmt.Sscanf(p.id[strings.LastIndex(p.id, "-")+1:], "%d", &number)
		require.NoError(t, err)
		sandboxes += number + 1
	}
	t.Logf("%d sandboxes, %d commands failed, %d kills", sandboxes, failures, kills)
	for i := 0; i < pods; i += 2 {
		require.NoError(t, last[i].del())
	}
	require.Empty(t, n.links())
	require.Contains(t, n.get("/metrics"), "\nmni_netd_attachments 0\n")
}
