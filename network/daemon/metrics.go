package daemon

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/mnicloud/mnicloud/kit/version"
)

// metrics are the daemon's own; what the datapath counts is read when it is asked for. docs/howto/network.md lists all of them.
type metrics struct {
	registry    *prometheus.Registry
	commands    *prometheus.HistogramVec
	syncs       *prometheus.CounterVec
	lastSync    prometheus.Gauge
	watchErrors prometheus.Counter
	claims      *prometheus.CounterVec
}

// health is what the daemon knows of itself.
type health struct {
	// ready is nil while Pods can be attached, synced tells that the API server has told everything.
	ready  func() error
	synced func() bool
}

// newMetrics makes the metrics. Until observe is called they are the daemon's own alone.
func newMetrics(node string) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		commands: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mni_netd_cni_duration_seconds", Help: "How long CNI commands took, by command and whether they succeeded.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 30},
		}, []string{"command", "success"}),
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mni_netd_syncs_total", Help: "How often the maps were brought to the desired state, by whether it succeeded.",
		}, []string{"success"}),
		lastSync: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mni_netd_last_sync_timestamp_seconds", Help: "When the maps were last brought to the desired state, in seconds since 1970.",
		}),
		watchErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mni_netd_watch_errors_total", Help: "How often a watch of the API server broke off or could not begin.",
		}),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mni_netd_port_block_claims_total",
			Help: "Claims of PortBlocks of NATGateways, by result: claimed, taken (another node was first), none (all ports are taken) or error.",
		}, []string{"result"}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mni_netd_info", Help: "1, with the version of mni-netd and the node it is on.",
		ConstLabels: prometheus.Labels{"version": version.String(), "node": node},
	})
	info.Set(1)
	m.registry.MustRegister(m.commands, m.syncs, m.lastSync, m.watchErrors, m.claims, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// observe adds what is read when it is asked for.
func (m *metrics) observe(p *programmer, h health) {
	m.registry.MustRegister(
		collector{p},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "mni_netd_ready", Help: "1 while Pods can be attached.",
		}, func() float64 { return one(h.ready() == nil) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "mni_netd_api_synced", Help: "1 when the API server has told everything since the daemon started.",
		}, func() float64 { return one(h.synced()) }),
	)
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func (m *metrics) command(name string, took time.Duration, err error) {
	m.commands.WithLabelValues(name, strconv.FormatBool(err == nil)).Observe(took.Seconds())
}

func (m *metrics) sync(err error) {
	m.syncs.WithLabelValues(strconv.FormatBool(err == nil)).Inc()
	if err == nil {
		m.lastSync.SetToCurrentTime()
	}
}

// claim counts a claim of a PortBlock.
func (m *metrics) claim(result string) { m.claims.WithLabelValues(result).Inc() }

// watchError counts a watch that broke off and does what the library does about it.
func (m *metrics) watchError(ctx context.Context, r *toolscache.Reflector, err error) {
	m.watchErrors.Inc()
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
}
