package daemon

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/daemon/desired"
	"github.com/mnicloud/mnicloud/test/documented"
)

func TestEveryMetricIsDocumentedAndEveryDocumentedMetricExists(t *testing.T) {
	m := newMetrics("node-1")
	m.observe(&programmer{attached: map[string]desired.Attachment{}}, health{ready: func() error { return nil }, synced: func() bool { return true }})
	documented.Metrics(t, "mni-netd", m.registry)
	_, err := m.registry.Gather()
	require.NoError(t, err, "before anything is loaded")
}

// httpGet asks over HTTP from a place, and returns the status line and the body.
func httpGet(t *testing.T, from place, address, path string) (status, body string) {
	var conn net.Conn
	var err error
	from(func() { conn, err = net.DialTimeout("tcp4", address, patience) })
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", path)
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	status, _, _ = strings.Cut(head, "\r\n")
	return status, body
}

// sample is the value of a metric by what identifies an interface or a map; labels of all that has the name come second.
func sample(t *testing.T, families map[string]*dto.MetricFamily, name, label, value string) float64 {
	family := families[name]
	require.NotNil(t, family, name)
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && l.GetValue() == value {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	require.Fail(t, "no such series", "%s{%s=%q}", name, label, value)
	return 0
}

func TestMetricsAreOfThisNodesInterfacesAndForHostsAndThePlatformOnly(t *testing.T) {
	c := running(t)
	one, two := c.nodes[0], c.nodes[1]
	red, ordinary := c.subnet("red", "10.1.0.0/24", 1001, 1001), c.defaultSubnet()
	here, there := one.pod("here", red, "10.1.0.5", "198.18.0.5"), two.pod("there", red, "10.1.0.6", "198.18.0.6")
	web, scraper := one.pod("web", ordinary, "198.18.0.7", "198.18.0.7"), two.pod("scraper", ordinary, "198.18.0.8", "198.18.0.8")
	for _, p := range []*pod{here, there, web, scraper} {
		p.mustAdd()
	}
	c.answer(there.inside, "there")
	for range 3 {
		c.eventually(here.inside, "10.1.0.6", "there to 10.1.0.5: hello")
	}
	require.Empty(t, c.ask(here.inside, "10.9.9.9"))

	// What tenants and ordinary Pods get: nothing, and health.
	metrics := one.address.String() + ":9100"
	for _, from := range []place{web.inside, scraper.inside} {
		status, body := httpGet(t, from, metrics, "/metrics")
		require.Contains(t, status, "403")
		require.NotContains(t, body, "here")
		status, _ = httpGet(t, from, metrics, "/healthz")
		require.Contains(t, status, "200")
	}
	// Hosts, and the platform's Pods once they are.
	for _, from := range []place{machine, one.inside, two.inside} {
		status, _ := httpGet(t, from, metrics, "/metrics")
		require.Contains(t, status, "200")
	}
	c.patch(scraper.nic, func() { scraper.nic.Spec.Platform = true })
	var body string
	require.Eventually(t, func() bool {
		var status string
		status, body = httpGet(t, scraper.inside, metrics, "/metrics")
		return strings.Contains(status, "200")
	}, patience, moment)

	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	require.NoError(t, err)
	for _, name := range []string{"mni_interface_sent_packets_total", "mni_interface_delivered_packets_total"} {
		require.GreaterOrEqual(t, sample(t, families, name, "pod", "here"), 3.0, name)
	}
	require.Greater(t, sample(t, families, "mni_interface_delivered_bytes_total", "pod", "here"), 3*42.0)
	require.Greater(t, sample(t, families, "mni_interface_sent_bytes_total", "pod", "here"), 3*42.0)
	require.Positive(t, sample(t, families, "mni_drop_packets_total", "reason", "no_route"))
	require.Equal(t, 2.0, sample(t, families, "mni_map_entries", "map", "nics"))
	require.Equal(t, 16384.0, sample(t, families, "mni_map_max_entries", "map", "nics"))
	require.Equal(t, 2.0, families["mni_netd_attachments"].GetMetric()[0].GetGauge().GetValue())
	require.Equal(t, 1.0, families["mni_netd_ready"].GetMetric()[0].GetGauge().GetValue())
	require.Equal(t, 1.0, families["mni_netd_api_synced"].GetMetric()[0].GetGauge().GetValue())
	require.NotContains(t, body, `pod="there"`, "of another node")
	require.Contains(t, body, `mni_netd_cni_duration_seconds_count{command="ADD",success="true"} 2`)

	// With the interface its series go.
	require.NoError(t, here.del())
	_, body = httpGet(t, machine, metrics, "/metrics")
	require.NotContains(t, body, `pod="here"`)
}
