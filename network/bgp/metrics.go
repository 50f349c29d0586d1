package bgp

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mnicloud/mnicloud/network/bgp/bird"
)

// metrics are the speaker's own.
type metrics struct {
	registry       *prometheus.Registry
	configurations *prometheus.CounterVec
	restarts       prometheus.Counter
	up, sent       *prometheus.GaugeVec
}

func newMetrics() *metrics {
	peer := []string{"peer"}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		configurations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mni_bgpd_syncs_total", Help: "How often BIRD was brought to the desired configuration, by whether it succeeded.",
		}, []string{"success"}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mni_bgpd_bird_exits_total", Help: "How often BIRD ended by itself.",
		}),
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mni_bgpd_session_up", Help: "Whether the session with a BGPPeer is Established.",
		}, peer),
		sent: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mni_bgpd_routes_sent", Help: "How many routes are announced to a BGPPeer.",
		}, peer),
	}
	m.registry.MustRegister(m.configurations, m.restarts, m.up, m.sent,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// observe notes how the sessions are; peers that are gone are forgotten.
func (m *metrics) observe(sessions []bird.Session) {
	m.up.Reset()
	m.sent.Reset()
	for _, s := range sessions {
		value := 0.0
		if s.State == bird.Established {
			value = 1
		}
		m.up.WithLabelValues(s.Peer).Set(value)
		m.sent.WithLabelValues(s.Peer).Set(float64(s.Sent))
	}
}
