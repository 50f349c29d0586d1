package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/mnicloud/mnicloud/kit/version"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	network "github.com/mnicloud/mnicloud/network/controller"
	"github.com/mnicloud/mnicloud/network/routing"
	"github.com/mnicloud/mnicloud/platform/dependency"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	auth "github.com/mnicloud/mnicloud/services/auth/controller"
	"github.com/mnicloud/mnicloud/services/auth/password"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	ctr "github.com/mnicloud/mnicloud/services/ctr/controller"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend/netbackend"
	vpc "github.com/mnicloud/mnicloud/services/vpc/controller"
)

// services are what --services chooses from, in the order in which they are set up.
var services = []string{"net", "dependency", "auth", "vpc", "ctr"}

type options struct {
	kubeconfig         string
	services           []string
	infrastructureCIDR string
	reservedCIDRs      []string
	leaderElect        bool
	leaderNamespace    string
	metricsAddress     string
	healthAddress      string
	webhookAddress     string
	webhookCert        string
	webhookKey         string
	passwordCost       int
	webhooks           webhook.Server // nil: none are served
	logLevel           string
}

func command() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use: "mni-cloud", Short: "The controllers of mNi Cloud", Version: version.String(), Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	f := c.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; without it the Pod's service account is used")
	f.StringSliceVar(&o.services, "services", services, "controllers to run")
	f.StringVar(&o.infrastructureCIDR, "infrastructure-cidr", "198.18.0.0/17", "`range` of the addresses that Kubernetes sees as Pods'")
	f.StringSliceVar(&o.reservedCIDRs, "reserved-cidr", nil, "`range` that no VPC may meet, beside the well-known ones (may be repeated)")
	f.BoolVar(&o.leaderElect, "leader-elect", false, "work only while holding a lease, so that several may run")
	f.StringVar(&o.leaderNamespace, "leader-elect-namespace", "kube-system", "`namespace` of the lease")
	f.StringVar(&o.metricsAddress, "metrics-address", "0", "`address` to serve metrics on (127.0.0.1:8080), 0 for none")
	f.StringVar(&o.healthAddress, "health-address", "0", "`address` to serve /healthz and /readyz on, 0 for none")
	f.StringVar(&o.webhookAddress, "webhook-address", "0", "`address` to serve webhooks on (192.0.2.1:9443), 0 for none")
	f.StringVar(&o.webhookCert, "webhook-cert", "", "`file` with the certificate of the webhooks' server, PEM")
	f.StringVar(&o.webhookKey, "webhook-key", "", "`file` with its private key, PEM")
	f.IntVar(&o.passwordCost, "password-cost", password.DefaultCost, "bcrypt cost of new passwords' hashes, 10 to 14")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

// run runs the chosen controllers until the context ends.
func (o *options) run(ctx context.Context) error {
	if err := o.logTo(os.Stderr); err != nil {
		return err
	}
	for _, s := range o.services {
		if !slices.Contains(services, s) {
			return fmt.Errorf("--services: %q is none of %s", s, strings.Join(services, ", "))
		}
	}
	// In one order and once each, so that the same choice has the same lease.
	o.services = slices.DeleteFunc(slices.Clone(services), func(s string) bool { return !slices.Contains(o.services, s) })
	reserved, err := parseRanges("--reserved-cidr", o.reservedCIDRs)
	if err != nil {
		return err
	}
	infrastructure, err := parseRanges("--infrastructure-cidr", []string{o.infrastructureCIDR})
	if err != nil {
		return err
	}
	if err := o.makeWebhooks(); err != nil {
		return err
	}
	api, err := o.restConfig()
	if err != nil {
		return err
	}
	mgr, err := o.manager(api)
	if err != nil {
		return err
	}
	if o.webhooks != nil {
		if err := errors.Join(mgr.Add(o.webhooks), mgr.AddReadyzCheck("webhooks", o.webhooks.StartedChecker())); err != nil {
			return err
		}
	}
	if err := o.setup(ctx, mgr, infrastructure[0], reserved); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the controllers: %w", err)
	}
	return nil
}

func (o *options) logTo(w *os.File) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	handler := slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})
	slog.SetDefault(slog.New(handler))
	ctrl.SetLogger(logr.FromSlogHandler(handler))
	klog.SetLogger(logr.FromSlogHandler(handler))
	return nil
}

// parseRanges reads canonical IPv4 ranges.
func parseRanges(flag string, ranges []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range ranges {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not an address range such as 198.18.0.0/17", flag, s)
		}
		if p != p.Masked() {
			return nil, fmt.Errorf("%s: %s has bits set beyond the prefix length; write %s", flag, p, p.Masked())
		}
		out = append(out, p)
	}
	return out, nil
}

func (o *options) restConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	// The API server's priority and fairness is what shares it out; throttling here as well only makes bursts slow.
	config.QPS = -1
	config.UserAgent = "mni-cloud/" + version.String()
	return config, nil
}

func (o *options) manager(api *rest.Config) (ctrl.Manager, error) {
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), netv1.AddToScheme(s), authv1.AddToScheme(s), vpcv1.AddToScheme(s), ctrv1.AddToScheme(s)); err != nil {
		return nil, fmt.Errorf("register the kinds: %w", err)
	}
	objects := network.CacheByObject()
	maps.Copy(objects, auth.CacheByObject())
	mgr, err := ctrl.NewManager(api, ctrl.Options{
		Scheme:                        s,
		Cache:                         cache.Options{ByObject: objects},
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "mni-cloud-" + strings.Join(o.services, "-"),
		LeaderElectionNamespace:       o.leaderNamespace,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.healthAddress,
		// controller-runtime 0.24's priority queue can hang when it is shut down: it hands an item to a worker that has left,
		// holding its locks, and the others wait for those until the grace period is over.
		Controller: config.Controller{UsePriorityQueue: ptr.To(false)},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	synced := func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches are not filled yet")
		}
		return nil
	}
	return mgr, errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", synced))
}

// makeWebhooks makes the webhooks' server, if there is to be one.
func (o *options) makeWebhooks() error {
	if o.webhookAddress == "0" {
		return nil
	}
	host, port, err := net.SplitHostPort(o.webhookAddress)
	if err != nil {
		return fmt.Errorf("--webhook-address: %w", err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("--webhook-address: port %q is no number from 1 to 65535", port)
	}
	dir := filepath.Dir(o.webhookCert)
	if o.webhookCert == "" || o.webhookKey == "" || filepath.Dir(o.webhookKey) != dir {
		return errors.New("--webhook-cert and --webhook-key: both are needed to serve webhooks, and must be in one folder")
	}
	o.webhooks = webhook.NewServer(webhook.Options{
		Host: host, Port: int(number), CertDir: dir, CertName: filepath.Base(o.webhookCert), KeyName: filepath.Base(o.webhookKey),
	})
	return nil
}

// setup adds the chosen controllers to the manager.
func (o *options) setup(ctx context.Context, mgr ctrl.Manager, infrastructure netip.Prefix, reserved []netip.Prefix) error {
	add := map[string]func() error{
		"net": func() error {
			return network.SetupWithManager(ctx, mgr, network.Config{
				InfrastructureCIDR: infrastructure, ReservedCIDRs: append(routing.Reserved(), reserved...),
			})
		},
		"dependency": func() error {
			return dependency.SetupWithManager(mgr, dependency.Config{Webhooks: o.webhooks})
		},
		"auth": func() error {
			return auth.SetupWithManager(ctx, mgr, auth.Config{Webhooks: o.webhooks, PasswordCost: o.passwordCost})
		},
		"vpc": func() error {
			if err := netbackend.AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
				return err
			}
			return vpc.SetupWithManager(ctx, mgr, vpc.Config{
				Backend: netbackend.New(mgr.GetClient(), mgr.GetAPIReader()), ReservedCIDRs: append(reserved, infrastructure),
			})
		},
		"ctr": func() error { return ctr.SetupWithManager(ctx, mgr, ctr.Config{}) },
	}
	for _, s := range o.services {
		if err := add[s](); err != nil {
			return fmt.Errorf("set up %s: %w", s, err)
		}
	}
	return nil
}
