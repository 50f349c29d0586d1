package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mnicloud/mnicloud/network/daemon/desired"
)

// mayScrape tells whether an address may read metrics, which name every tenant's Pods on this node: hosts of the network, this one
// among them, and the platform's Pods. A tenant's workload does not reach the node at all, an ordinary Pod is told no; neither can
// send from another's address.
func (d *daemon) mayScrape(ctx context.Context, from netip.Addr) bool {
	if from.IsLoopback() || from == d.options.NodeAddress || slices.Contains(d.options.ExtraHosts, from) {
		return true
	}
	if !d.synced.Load() {
		return false // the cache would keep the scraper waiting
	}
	in, err := d.input(ctx)
	if err != nil {
		return false
	}
	for _, m := range desired.Members(in.Nodes, in.ExtraHosts) {
		if m.Address == from {
			return true
		}
	}
	for i := range in.Interfaces {
		if nic := &in.Interfaces[i]; nic.Spec.Platform && nic.Spec.Pod != nil && nic.Status.InfrastructureAddress == from.String() {
			return true
		}
	}
	return false
}

// serveHTTP serves metrics and health until ctx ends.
func serveHTTP(ctx context.Context, address string, m *metrics, ready func() error, mayScrape func(context.Context, netip.Addr) bool, log *slog.Logger) error {
	mux := http.NewServeMux()
	scrape := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !mayScrape(r.Context(), from.Addr().Unmap()) {
			http.Error(w, "metrics are for the network's hosts and the platform's Pods only", http.StatusForbidden)
			return
		}
		scrape.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--metrics-address: %w", err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() {
		if err := server.Close(); err != nil {
			log.Warn("stop serving metrics", "error", err)
		}
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
