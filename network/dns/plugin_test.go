package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/dns/names"
)

// knowing is a resolver that knows a tenant's web, and its metrics.
func knowing(next plugin.Handler) (*resolver, *metrics) {
	m := newMetrics()
	r := &resolver{next: next, directory: &atomic.Pointer[names.Directory]{}, observe: m.observe, waiting: map[netip.Addr]int{}}
	r.directory.Store(names.Make(names.Input{
		VPCs:       []netv1.VPC{*aVPC(1001, "team-a"), *aVPC(1002, "team-b")},
		Interfaces: []netv1.NetworkInterface{*aNIC(1001, "team-a", "web", "10.0.1.5", tenantA), *aNIC(1002, "team-b", "web", "10.0.1.7", tenantB)},
	}))
	return r, m
}

// from is a writer whose client is at an address.
func from(source string) *test.ResponseWriter { return &test.ResponseWriter{RemoteIP: source} }

func TestWhatIsNoQuestionIsNotAnswered(t *testing.T) {
	r, _ := knowing(nil)
	for name, change := range map[string]func(*dns.Msg){
		"an update": func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, "a notification": func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify },
		"an answer": func(m *dns.Msg) { m.Response = true }, "two questions": func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		"none": func(m *dns.Msg) { m.Question = nil },
	} {
		m := new(dns.Msg).SetQuestion("web.shop.internal.", dns.TypeA)
		change(m)
		code, err := r.ServeDNS(t.Context(), from(tenantA), m)
		require.NoError(t, err, name)
		require.Equal(t, dns.RcodeNotImplemented, code, name)
	}
}

// A tenant whose questions outside are not answered must not take the node's resolver from the others.
func TestATenantThatIsNotAnsweredFromOutsideLeavesRoomForOthers(t *testing.T) {
	release, waiting := make(chan struct{}), make(chan struct{})
	slow := plugin.HandlerFunc(func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
		waiting <- struct{}{}
		<-release
		return dns.RcodeSuccess, nil
	})
	r, _ := knowing(slow)
	asks := func(source, name string) int {
		code, err := r.ServeDNS(context.WithoutCancel(t.Context()), from(source), new(dns.Msg).SetQuestion(name, dns.TypeA))
		require.NoError(t, err)
		return code
	}
	done := make(chan int)
	for i := range outsideAtOnce {
		go func() { done <- asks(tenantA, fmt.Sprintf("%d.example.com.", i)) }()
		<-waiting
	}
	require.Equal(t, dns.RcodeRefused, asks(tenantA, "one-more.example.com."))
	require.Equal(t, dns.RcodeSuccess, asks(tenantA, "web.shop.internal."), "its own names are answered")
	go func() { done <- asks(tenantB, "example.com.") }()
	<-waiting
	close(release)
	for range outsideAtOnce + 1 {
		require.Equal(t, dns.RcodeSuccess, <-done)
	}
	go func() { done <- asks(tenantA, "example.com.") }()
	<-waiting
	require.Equal(t, dns.RcodeSuccess, <-done)
	require.Empty(t, r.waiting)
}

// The whole server: long answers fit a datagram that every path carries, and answers from outside are kept for all.
func TestALongAnswerIsCutShortByUDPAndWholeByTCP(t *testing.T) {
	asked := atomic.Int64{}
	upstream := outside(t, func(w dns.ResponseWriter, m *dns.Msg) {
		asked.Add(1)
		reply := new(dns.Msg).SetReply(m)
		for i := range 16 {
			reply.Answer = append(reply.Answer, &dns.TXT{
				Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60}, Txt: []string{fmt.Sprint(i, strings.Repeat("x", 60))},
			})
		}
		_ = w.WriteMsg(reply)
	})
	r, m := knowing(nil)
	at, ready := freeAddress(t), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- serve(ctx, at, upstream, r, func() { close(ready) }) }()
	<-ready
	exchange := func(network string, size uint16) *dns.Msg {
		t.Helper()
		local := net.Addr(&net.UDPAddr{IP: net.ParseIP(tenantA)})
		if network == "tcp" {
			local = &net.TCPAddr{IP: net.ParseIP(tenantA)}
		}
		c := dns.Client{Net: network, Timeout: waitTimeout, UDPSize: size, Dialer: &net.Dialer{LocalAddr: local}}
		question := new(dns.Msg).SetQuestion("long.example.com.", dns.TypeTXT)
		if size > 0 {
			question.SetEdns0(size, false)
		}
		reply, _, err := c.Exchange(question, at.String())
		require.NoError(t, err)
		return reply
	}
	for _, size := range []uint16{0, 1232, 4096} {
		short := exchange("udp", size)
		require.True(t, short.Truncated, "%d", size)
		require.LessOrEqual(t, short.Len(), max(int(min(size, 1232)), 512))
	}
	require.Len(t, exchange("tcp", 0).Answer, 16)
	before := asked.Load()
	require.Len(t, exchange("tcp", 0).Answer, 16)
	require.Equal(t, before, asked.Load(), "the answer was kept")
	families, err := m.registry.Gather()
	require.NoError(t, err)
	require.NotEmpty(t, families)
	cancel()
	require.NoError(t, <-ended)
}

// A Service that stands for a name outside is answered whole: who asks follows no aliases itself.
func TestAnAliasOfANameOutsideIsAnsweredWithWhatTheOutsideKnows(t *testing.T) {
	code := dns.RcodeSuccess
	next := plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, m *dns.Msg) (int, error) {
		require.Equal(t, "example.com.", m.Question[0].Name)
		if code == dns.RcodeServerFailure {
			return code, nil
		}
		reply := new(dns.Msg).SetRcode(m, code)
		if code == dns.RcodeSuccess {
			reply.Answer = []dns.RR{test.A("example.com. 60 IN A 192.0.2.80")}
		}
		return dns.RcodeSuccess, w.WriteMsg(reply)
	})
	r, _ := knowing(next)
	r.directory.Store(names.Make(names.Input{
		VPCs:       []netv1.VPC{*aVPC(1001, "team-a")},
		Interfaces: []netv1.NetworkInterface{*aNIC(1001, "team-a", "web", "10.0.1.5", tenantA)},
		Services: []corev1.Service{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "elsewhere"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"},
		}},
	}))
	asks := func() (int, *dns.Msg) {
		w := &heard{ResponseWriter: from(tenantA)}
		code, err := r.ServeDNS(t.Context(), w, new(dns.Msg).SetQuestion("elsewhere.team-a.svc.cluster.local.", dns.TypeA))
		require.NoError(t, err)
		return code, w.said
	}
	_, reply := asks()
	require.Equal(t, "elsewhere.team-a.svc.cluster.local.", reply.Question[0].Name)
	require.Len(t, reply.Answer, 2)
	require.Equal(t, "example.com.", reply.Answer[0].(*dns.CNAME).Target)
	require.Equal(t, "192.0.2.80", reply.Answer[1].(*dns.A).A.String())
	code = dns.RcodeNameError
	_, reply = asks()
	require.Equal(t, dns.RcodeNameError, reply.Rcode)
	require.Len(t, reply.Answer, 1)
	code = dns.RcodeServerFailure
	failed, reply := asks()
	require.Equal(t, dns.RcodeServerFailure, failed)
	require.Nil(t, reply)
	require.Empty(t, r.waiting)
}

// heard remembers what was said.
type heard struct {
	dns.ResponseWriter
	said *dns.Msg
}

func (h *heard) WriteMsg(m *dns.Msg) error {
	h.said = m
	return nil
}
