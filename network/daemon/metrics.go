package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mnicloud/mnicloud/network/daemon/desired"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// metrics are the daemon's own; drops are read from the datapath when they are asked for.
type metrics struct {
	registry *prometheus.Registry
	commands *prometheus.HistogramVec
	syncs    *prometheus.CounterVec
}

func newMetrics(p *programmer) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		commands: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mni_netd_cni_duration_seconds", Help: "How long CNI commands took, by command and whether they succeeded.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 30},
		}, []string{"command", "success"}),
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mni_netd_syncs_total", Help: "How often the maps were brought to the desired state, by whether it succeeded.",
		}, []string{"success"}),
	}
	m.registry.MustRegister(m.commands, m.syncs, dropCollector{p},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) command(name string, took time.Duration, err error) {
	m.commands.WithLabelValues(name, strconv.FormatBool(err == nil)).Observe(took.Seconds())
}

func (m *metrics) sync(err error) { m.syncs.WithLabelValues(strconv.FormatBool(err == nil)).Inc() }

var (
	dropLabels = []string{"reason", "interface", "namespace", "pod", "vpc"}
	dropDesc   = prometheus.NewDesc("mni_drop_packets_total",
		"Packets the datapath dropped, by reason and by the NetworkInterface (or host, vxlan) whose program dropped them.", dropLabels, nil)
	dropBytesDesc   = prometheus.NewDesc("mni_drop_bytes_total", "Bytes of the packets the datapath dropped.", dropLabels, nil)
	closedDesc      = prometheus.NewDesc("mni_netd_closed_interfaces", "Interfaces that are closed because their policies could not be written.", nil, nil)
	attachmentsDesc = prometheus.NewDesc("mni_netd_attachments", "Containers that are attached.", nil, nil)
)

// dropCollector reads the datapath's counters.
type dropCollector struct{ programmer *programmer }

// Describe implements prometheus.Collector.
func (c dropCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- dropDesc
	ch <- dropBytesDesc
	ch <- attachmentsDesc
	ch <- closedDesc
}

// Collect implements prometheus.Collector.
func (c dropCollector) Collect(ch chan<- prometheus.Metric) {
	drops, attachments, names, err := c.programmer.drops()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(dropDesc, err)
		return
	}
	ch <- prometheus.MustNewConstMetric(closedDesc, prometheus.GaugeValue, float64(c.programmer.closed()))
	ch <- prometheus.MustNewConstMetric(attachmentsDesc, prometheus.GaugeValue, float64(len(attachments)))
	for key, count := range drops {
		labels := []string{key.Reason.String(), names[key.Ifindex], "", "", ""}
		if a, ok := attachments[key.Ifindex]; ok {
			nic := a.Interface
			labels = []string{key.Reason.String(), nic.Name, nic.Pod.Namespace, nic.Pod.Name, strconv.FormatUint(uint64(nic.VPCID), 10)}
		} else if names[key.Ifindex] == "" {
			continue // of an interface that has just gone
		}
		ch <- prometheus.MustNewConstMetric(dropDesc, prometheus.CounterValue, float64(count.Packets), labels...)
		ch <- prometheus.MustNewConstMetric(dropBytesDesc, prometheus.CounterValue, float64(count.Bytes), labels...)
	}
}

// drops are the counters, the attachments by ifindex, and the names of the other interfaces that have programs.
func (p *programmer) drops() (map[datapath.DropKey]datapath.DropCount, map[int]desired.Attachment, map[int]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.datapath == nil {
		return nil, nil, nil, nil
	}
	counts, err := p.datapath.Drops.List()
	attachments := map[int]desired.Attachment{}
	for _, a := range p.attached {
		attachments[a.Ifindex] = a
	}
	return counts, attachments, p.links, err
}

// serveHTTP serves metrics and health until ctx ends.
func serveHTTP(ctx context.Context, address string, m *metrics, ready func() error, log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
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
