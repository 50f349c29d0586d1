package dns

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mnicloud/mnicloud/network/dns/names"
)

// metrics are the resolver's own. Those of CoreDNS' plugins, and of the process, are beside them in the default registry.
type metrics struct {
	registry *prometheus.Registry
	queries  *prometheus.CounterVec
	known    *prometheus.GaugeVec
	synced   prometheus.Gauge
	saves    *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mni_dns_queries_total", Help: "Questions, by what became of them: vpc, service, reverse, outside, refused or limited.",
		}, []string{"answer"}),
		known: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mni_dns_known", Help: "How much is known: VPCs, the interfaces in them that may ask, names.",
		}, []string{"what"}),
		synced: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mni_dns_synced", Help: "Whether what is known is from the API server; 0 while it is from the file.",
		}),
		saves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mni_dns_saves_total", Help: "How often what is known was brought to the file, by whether it succeeded.",
		}, []string{"success"}),
	}
	m.registry.MustRegister(m.queries, m.known, m.synced, m.saves)
	return m
}

// observe notes what became of a question.
func (m *metrics) observe(kind names.Kind) { m.queries.WithLabelValues(string(kind)).Inc() }

// knows notes how much is known.
func (m *metrics) knows(d *names.Directory, synced bool) {
	count := 0
	for _, vpc := range d.VPCs {
		count += len(vpc.Hosts) + len(vpc.Services)
	}
	m.known.WithLabelValues("vpcs").Set(float64(len(d.VPCs)))
	m.known.WithLabelValues("interfaces").Set(float64(len(d.Sources)))
	m.known.WithLabelValues("names").Set(float64(count))
	m.synced.Set(0)
	if synced {
		m.synced.Set(1)
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(prometheus.Gatherers{m.registry, prometheus.DefaultGatherer}, promhttp.HandlerOpts{})
}
