package daemon

import (
	"context"
	"net/http"
	"net/netip"
	"slices"

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

// metricsHandler serves metrics to those who may read them.
func metricsHandler(m *metrics, mayScrape func(context.Context, netip.Addr) bool) http.Handler {
	scrape := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !mayScrape(r.Context(), from.Addr().Unmap()) {
			http.Error(w, "metrics are for the network's hosts and the platform's Pods only", http.StatusForbidden)
			return
		}
		scrape.ServeHTTP(w, r)
	})
}
