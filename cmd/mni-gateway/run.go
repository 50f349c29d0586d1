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
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/version"
	"github.com/mnicloud/mnicloud/platform/audit"
	"github.com/mnicloud/mnicloud/platform/gateway"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/session"
)

type options struct {
	kubeconfig    string
	address       string
	healthAddress string
	cert, key     string
	public        public
	logLevel      string
	consoles      map[string]string
	limits        gateway.Limits
	trail         audit.Options
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
	f.StringVar(&o.public.address, "public-address", "", "a second `address` to serve the API on, with a certificate of its own")
	f.StringVar(&o.public.cert, "public-cert", "", "`file` with the certificate of the second address; without it, the first one's serves both")
	f.StringVar(&o.public.key, "public-key", "", "`file` with its private key")
	f.StringVar(&o.healthAddress, "health-address", "0", "`address` to serve /healthz and /readyz on, 0 for none")
	f.StringToStringVar(&o.consoles, "console", nil, "where a service's console is, to serve it under /SERVICE/: `SERVICE=URL`")
	f.Float64Var(&o.limits.PerSecond, "user-rate", 100, "requests that a user may begin in a second")
	f.IntVar(&o.limits.Burst, "user-burst", 400, "requests that a user may begin at once")
	f.IntVar(&o.limits.AtOnce, "user-open", 1000, "requests of a user that may be open, watches among them")
	f.DurationVar(&o.trail.Age, "audit-age", 90*24*time.Hour, "how long entries of tenants' audit trails are kept")
	f.Int64Var(&o.trail.Bytes, "audit-bytes", 2<<20, "how many bytes of audit trail are kept of each tenant; the oldest entries go first")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

// public is a second address at which the API is served. Empty: none.
type public struct{ address, cert, key string }

// face is a listener with its certificate, which is read again when it changes.
type face struct {
	listener    net.Listener
	certificate *certwatcher.CertWatcher
}

// faces are where the API is served.
func (o *options) faces() ([]face, error) {
	certificate, err := certwatcher.New(o.cert, o.key)
	if err != nil {
		return nil, fmt.Errorf("--cert and --key: %w", err)
	}
	listener, err := net.Listen("tcp", o.address)
	if err != nil {
		return nil, fmt.Errorf("--address: %w", err)
	}
	faces := []face{{listener, certificate}}
	if o.public.address == "" {
		return faces, nil
	}
	if o.public.cert != "" || o.public.key != "" {
		if certificate, err = certwatcher.New(o.public.cert, o.public.key); err != nil {
			return nil, errors.Join(fmt.Errorf("--public-cert and --public-key: %w", err), listener.Close())
		}
	}
	second, err := net.Listen("tcp", o.public.address)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--public-address: %w", err), listener.Close())
	}
	return append(faces, face{second, certificate}), nil
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
	faces, err := o.faces()
	if err != nil {
		return err
	}
	return o.serve(ctx, api, faces, log)
}

// serve serves the API on the faces.
func (o *options) serve(ctx context.Context, api *rest.Config, faces []face, log *slog.Logger) error {
	known, service, live, err := identities(ctx, api)
	if err != nil {
		return err
	}
	people := &users{sessions: service, tenants: known}
	if o.trail.Age < 0 || o.trail.Bytes < 0 {
		return errors.New("--audit-age and --audit-bytes must not be negative")
	}
	o.trail.Namespace, o.trail.Log = authv1.SystemNamespace, log
	trail := audit.New(live, o.trail)
	g, err := gateway.New(gateway.Config{
		Upstream: api, Authenticator: people, Open: entrances(people, trail, log), Consoles: o.consoles, Limits: o.limits, Trail: trail, Log: log,
	})
	if err != nil {
		return err
	}
	defer closeTrail(context.WithoutCancel(ctx), trail, log)
	group, ctx := errgroup.WithContext(ctx)
	var informed atomic.Bool
	group.Go(func() error { return known.Start(ctx) })
	group.Go(func() error {
		informed.Store(known.WaitForCacheSync(ctx))
		return nil
	})
	group.Go(func() error { return g.Run(ctx) })
	group.Go(func() error { return trail.Run(ctx) })
	watched := map[*certwatcher.CertWatcher]bool{}
	for _, f := range faces {
		if !watched[f.certificate] {
			watched[f.certificate] = true
			group.Go(func() error { return f.certificate.Start(ctx) })
		}
		group.Go(func() error {
			return gateway.Serve(ctx, f.listener, g, func() (*tls.Certificate, error) { return f.certificate.GetCertificate(nil) }, log)
		})
	}
	group.Go(func() error { return o.serveHealth(ctx, func() bool { return g.Ready() && informed.Load() }) })
	return group.Wait()
}

// closeTrail stores what the last requests left in the audit trail.
func closeTrail(ctx context.Context, trail *audit.Trail, log *slog.Logger) {
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := trail.Close(ctx); err != nil {
		log.Error("the last entries of the audit trail were not stored", "error", err)
	}
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

// identities are the cache of Users, Tenants, ServiceAccounts and the metadata of credentials, the sessions that are checked with it, and the
// client that keeps them.
func identities(ctx context.Context, api *rest.Config) (cache.Cache, *session.Service, client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(authv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, nil, nil, err
	}
	credentials, err := labels.Parse(authv1.LabelCredential)
	if err != nil {
		return nil, nil, nil, err
	}
	known, err := cache.New(api, cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{authv1.SystemNamespace: {LabelSelector: credentials}}},
	}})
	if err != nil {
		return nil, nil, nil, err
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	for _, object := range []client.Object{&authv1.User{}, &authv1.Tenant{}, &authv1.ServiceAccount{}, secret} {
		if _, err := known.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return nil, nil, nil, fmt.Errorf("who there is: %w", err)
		}
	}
	live, err := client.New(api, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, nil, err
	}
	return known, session.New(live, known, session.Options{}), live, nil
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
			http.Error(w, "the kinds or the users of the cloud are not known yet", http.StatusServiceUnavailable)
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
