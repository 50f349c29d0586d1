package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/version"
	"github.com/mnicloud/mnicloud/platform/gateway"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/session"
)

type options struct {
	kubeconfig    string
	address       string
	healthAddress string
	cert, key     string
	logLevel      string
	limits        gateway.Limits
}

func command() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "mni-gateway", Short: "Serve the cloud's API", Args: cobra.NoArgs, Version: version.String(),
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := c.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; without it the Pod's own")
	f.StringVar(&o.address, "address", ":7443", "`address` to serve the API on")
	f.StringVar(&o.cert, "cert", "", "`file` with the API's certificate, PEM; read again when it changes")
	f.StringVar(&o.key, "key", "", "`file` with its private key, PEM")
	f.StringVar(&o.healthAddress, "health-address", "0", "`address` to serve /healthz and /readyz on, 0 for none")
	f.Float64Var(&o.limits.PerSecond, "user-rate", 100, "requests that a user may begin in a second")
	f.IntVar(&o.limits.Burst, "user-burst", 400, "requests that a user may begin at once")
	f.IntVar(&o.limits.AtOnce, "user-open", 1000, "requests of a user that may be open, watches among them")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

// run serves until the context ends.
func (o *options) run(ctx context.Context) error {
	log, err := o.log()
	if err != nil {
		return err
	}
	api, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	api.QPS = -1
	api.UserAgent = "mni-gateway/" + version.String()
	certificate, err := certwatcher.New(o.cert, o.key)
	if err != nil {
		return fmt.Errorf("--cert and --key: %w", err)
	}
	known, service, err := identities(ctx, api)
	if err != nil {
		return err
	}
	g, err := gateway.New(gateway.Config{
		Upstream: api, Authenticator: &users{sessions: service, tenants: known}, Limits: o.limits, Log: log,
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return known.Start(ctx) })
	group.Go(func() error { return certificate.Start(ctx) })
	group.Go(func() error { return g.Run(ctx) })
	group.Go(func() error {
		return gateway.Serve(ctx, listener, g, func() (*tls.Certificate, error) { return certificate.GetCertificate(nil) }, log)
	})
	group.Go(func() error { return o.serveHealth(ctx, g.Ready) })
	return group.Wait()
}

func (o *options) log() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	handler := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})
	ctrl.SetLogger(logr.FromSlogHandler(handler))
	klog.SetLogger(logr.FromSlogHandler(handler))
	return slog.New(handler), nil
}

// identities are the cache of Users, Tenants and the metadata of credentials, and the sessions that are checked with it.
func identities(ctx context.Context, api *rest.Config) (cache.Cache, *session.Service, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(authv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	known, err := cache.New(api, cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{authv1.SystemNamespace: {}}})
	if err != nil {
		return nil, nil, err
	}
	live, err := client.New(api, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, err
	}
	return known, session.New(live, known, session.Options{}), nil
}

// serveHealth says how the gateway is to whoever watches over it, not to users.
func (o *options) serveHealth(ctx context.Context, ready func() bool) error {
	if o.healthAddress == "0" {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "the kinds of the cloud are not known yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Addr: o.healthAddress, Handler: mux, ReadHeaderTimeout: time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("--health-address: %w", err)
	}
	return nil
}
