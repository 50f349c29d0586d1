package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mnicloud/mnicloud/kit/agent"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/bgp/bird"
	"github.com/mnicloud/mnicloud/network/bgp/desired"
)

const (
	// configureInterval is the least time between two configurations; the first after a pause is at once.
	configureInterval = 50 * time.Millisecond
	// reportInterval is the least time between two looks at the sessions; the first after a pause is at once.
	reportInterval = time.Second
	// lookInterval is how often the sessions are looked at when nothing is known to have changed: routes are counted then.
	lookInterval = 10 * time.Second
	// retryInterval is the pause after something failed.
	retryInterval = time.Second
	// patience is how often in a row BIRD may leave a question unanswered before it is started again.
	patience = 3
)

// speaker is one running mni-bgpd.
type speaker struct {
	log     *slog.Logger
	node    string
	rest    *rest.Config
	objects *objects
	bird    *bird.Daemon
	metrics *metrics
	// changed has a token when the configuration may have to change, stirred when the sessions should be looked at.
	changed, stirred chan struct{}
	notReady         atomic.Pointer[string]

	// Of the serving goroutine alone.
	peers    []netv1.BGPPeer
	refusals []desired.Refusal
	silent   int  // questions in a row that BIRD left unanswered
	absent   bool // there is no Node of this name, so that BIRD does not run
}

// Run is mni-bgpd. It returns when ctx ends, or with an error that a restart may mend; BIRD goes on either way.
func Run(ctx context.Context, options Options, log *slog.Logger) error {
	if err := options.complete(); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.UserAgent, config.Dial = "mni-bgpd", agent.Dial
	s := &speaker{
		log: log, node: options.NodeName, rest: config, metrics: newMetrics(),
		bird:    &bird.Daemon{Program: options.BIRD, Dir: options.RunDir, Log: log},
		changed: make(chan struct{}, 1), stirred: make(chan struct{}, 1),
	}
	s.setNotReady("the speaker is starting")
	if err := s.bird.Prepare(); err != nil {
		return err
	}
	if s.objects, err = newObjects(config, options.NodeName, func() { kick(s.changed) }); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if options.MetricsAddress != "" {
		group.Go(func() error { return agent.Serve(ctx, options.MetricsAddress, s.metrics.handler(), s.ready, log) })
	}
	group.Go(func() error { return s.serve(ctx) })
	group.Go(func() error {
		return bird.Follow(ctx, s.bird.LogFile(), func(line string) {
			log.Info("BIRD says", "line", line)
			kick(s.stirred)
		})
	})
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// serve keeps BIRD as it should be and tells how it is.
func (s *speaker) serve(ctx context.Context) error {
	s.setNotReady("the API server does not serve the network's objects yet")
	if err := agent.Await(ctx, s.rest, s.objects.resources...); err != nil {
		return err
	}
	s.setNotReady("the API server has not told everything yet")
	if err := s.objects.start(ctx); err != nil {
		return err
	}
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	kick(s.changed)
	for {
		var pause time.Duration
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.changed:
			pause = s.configure(ctx)
		case <-s.bird.Exited():
			s.log.Error("BIRD has ended; starting it again")
			s.metrics.restarts.Inc()
			pause = max(s.configure(ctx), retryInterval)
		case <-s.stirred:
			pause = s.report(ctx)
		case <-look.C:
			pause = s.report(ctx)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// configure brings BIRD to what the objects say, and says how long to wait before anything else.
func (s *speaker) configure(ctx context.Context) time.Duration {
	if err := s.step(ctx); err != nil {
		if ctx.Err() == nil {
			s.log.Error("BIRD is not as it should be; trying again", "error", err)
			s.setNotReady(err.Error())
			kick(s.changed)
		}
		s.metrics.configurations.WithLabelValues("false").Inc()
		return retryInterval
	}
	s.metrics.configurations.WithLabelValues("true").Inc()
	s.notReady.Store(nil)
	kick(s.stirred)
	return configureInterval
}

func (s *speaker) step(ctx context.Context) error {
	in, err := s.objects.input(ctx)
	if apierrors.IsNotFound(err) {
		return s.leave()
	}
	if err != nil {
		return err
	}
	s.absent = false
	config, refusals, err := desired.Compute(in)
	if err != nil {
		return err
	}
	s.peers, s.refusals = in.Peers, refusals
	config.LogFile = s.bird.LogFile()
	return s.bird.Ensure(ctx, config)
}

// leave ends BIRD while the cluster has no Node of this name: what was removed must attract no traffic. The speaker goes on, and BIRD
// starts again when the Node is there again.
func (s *speaker) leave() error {
	if !s.absent {
		s.log.Info("the cluster has no such node; nothing is announced", "node", s.node)
	}
	s.absent = true
	return s.bird.Stop()
}

// report looks at the sessions and writes what has changed, and says how long to wait before anything else. A BIRD that does not
// answer is ended, and started again by what notices that it ended.
func (s *speaker) report(ctx context.Context) time.Duration {
	if s.notReady.Load() != nil || s.absent {
		return 0
	}
	sessions, err := s.bird.Control().Sessions(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return 0
		}
		s.silent++
		s.log.Error("ask BIRD for its sessions", "error", err, "times", s.silent)
		if s.silent >= patience {
			s.silent = 0
			if err := s.bird.Kill(); err != nil {
				s.log.Error("end a BIRD that does not answer", "error", err)
			}
			kick(s.changed)
		}
		return retryInterval
	}
	s.silent = 0
	s.metrics.observe(sessions)
	if err := s.objects.report(ctx, s.peers, sessionsOf(s.node, sessions, s.refusals)); err != nil && ctx.Err() == nil {
		s.log.Error("report the sessions; trying again", "error", err)
		kick(s.stirred)
	}
	return reportInterval
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *speaker) setNotReady(why string) { s.notReady.Store(&why) }

// ready is nil while BIRD runs with what the API server says, and while it has no Node to run for.
func (s *speaker) ready() error {
	if why := s.notReady.Load(); why != nil {
		return errors.New(*why)
	}
	return nil
}
