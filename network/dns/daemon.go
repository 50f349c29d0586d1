package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mnicloud/mnicloud/kit/agent"
	"github.com/mnicloud/mnicloud/network/dns/names"
)

const (
	// syncInterval is the least time between two changes of what is known; the first after a pause is at once.
	syncInterval = 100 * time.Millisecond
	// retryInterval is the pause after what is known could not be kept.
	retryInterval = time.Second
	// patience is how long the API server may take to tell everything before a resolver that has just started believes its file:
	// an address may be another VPC's by now.
	patience = 2 * time.Second
)

// daemon is one running mni-dns.
type daemon struct {
	options   Options
	log       *slog.Logger
	rest      *rest.Config
	objects   *objects
	store     store
	metrics   *metrics
	directory atomic.Pointer[names.Directory]
	listening atomic.Bool

	// known is closed when there is something to answer from, kicked has a token when what is known must be made anew.
	known  chan struct{}
	kicked chan struct{}
}

// Run is mni-dns. It returns when ctx ends, or with an error that a restart may mend.
func Run(ctx context.Context, options Options, log *slog.Logger) error {
	if err := options.complete(); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.UserAgent, config.Dial = "mni-dns", agent.Dial
	d := &daemon{
		options: options, log: log, rest: config, store: store{path: options.File}, metrics: newMetrics(),
		known: make(chan struct{}), kicked: make(chan struct{}, 1),
	}
	if d.objects, err = newObjects(config, d.kick); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if options.MetricsAddress != "" {
		group.Go(func() error { return agent.Serve(ctx, options.MetricsAddress, d.metrics.handler(), d.ready, log) })
	}
	group.Go(func() error { return d.learn(ctx) })
	group.Go(func() error { return d.answer(ctx) })
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// learn keeps the directory up to date.
func (d *daemon) learn(ctx context.Context) error {
	synced := make(chan error, 1)
	go func() {
		err := agent.Await(ctx, d.rest, d.objects.resources...)
		if err == nil {
			err = d.objects.start(ctx)
		}
		synced <- err
	}()
	select {
	case err := <-synced:
		synced <- err
	case <-time.After(patience):
		d.remember()
	}
	if err := <-synced; err != nil {
		return err
	}
	d.kick()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.kicked:
		}
		in, err := d.objects.input(ctx)
		if err != nil {
			return err
		}
		directory := names.Make(in)
		d.know(directory, true)
		pause := syncInterval
		err = d.store.save(directory)
		d.metrics.saves.WithLabelValues(strconv.FormatBool(err == nil)).Inc()
		if err != nil {
			d.log.Error("what is known is not kept: a restart without the API server would not answer", "error", err)
			d.kick()
			pause = retryInterval
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// remember answers from the file, if there is one.
func (d *daemon) remember() {
	directory, err := d.store.load()
	switch {
	case err != nil:
		d.log.Error("nothing can be answered until the API server tells everything", "error", err)
	case directory == nil:
		d.log.Info("nothing is known yet: waiting for the API server")
	default:
		d.log.Info("the API server does not answer: answering from the file", "file", d.options.File)
		d.know(directory, false)
	}
}

// know replaces what is known.
func (d *daemon) know(directory *names.Directory, synced bool) {
	d.metrics.knows(directory, synced)
	if d.directory.Swap(directory) == nil {
		close(d.known)
	}
}

// answer answers once something is known.
func (d *daemon) answer(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-d.known:
	}
	r := &resolver{directory: &d.directory, observe: d.metrics.observe}
	return serve(ctx, d.options.Listen, d.options.ResolvConf, r, func() {
		d.listening.Store(true)
		d.log.Info("answering", "address", d.options.Listen, "resolvConf", d.options.ResolvConf)
	})
}

func (d *daemon) kick() {
	select {
	case d.kicked <- struct{}{}:
	default:
	}
}

// ready is nil while questions are answered.
func (d *daemon) ready() error {
	switch {
	case d.directory.Load() == nil:
		return errors.New("the API server has not told everything yet, and no file says it")
	case !d.listening.Load():
		return fmt.Errorf("this host does not have the address %s yet", d.options.Listen.Addr())
	}
	return nil
}
