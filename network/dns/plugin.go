package dns

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/nonwriter"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"

	"github.com/mnicloud/mnicloud/network/dns/names"
)

// pluginName is the directive in the Corefile.
const pluginName = "vpc"

// outsideAtOnce is how many questions for the resolvers outside an interface may have unanswered: those that nobody answers take
// long, and would be at the cost of the node's other tenants.
const outsideAtOnce = 100

// Kinds of what became of questions, beside those of names.
const limited names.Kind = "limited"

// resolver answers what the cloud itself knows; what it does not goes to the next plugin. It implements plugin.Handler.
type resolver struct {
	next      plugin.Handler
	directory *atomic.Pointer[names.Directory]
	observe   func(names.Kind)

	mu      sync.Mutex
	waiting map[netip.Addr]int // for answers from outside
}

// Name implements plugin.Handler.
func (r *resolver) Name() string { return pluginName }

// ServeDNS implements plugin.Handler.
func (r *resolver) ServeDNS(ctx context.Context, w dns.ResponseWriter, m *dns.Msg) (int, error) {
	if m.Opcode != dns.OpcodeQuery || m.Response || len(m.Question) != 1 {
		return dns.RcodeNotImplemented, nil
	}
	source, err := netip.ParseAddr((&request.Request{W: w, Req: m}).IP())
	if err != nil {
		return dns.RcodeServerFailure, err
	}
	source = source.Unmap()
	directory := r.directory.Load()
	if directory == nil {
		return dns.RcodeServerFailure, nil
	}
	answer := directory.Answer(source, m.Question[0])
	if answer.Kind == names.Outside {
		return r.outside(ctx, w, m, source)
	}
	r.observe(answer.Kind)
	if answer.Kind == names.Refused {
		return answer.Rcode, nil
	}
	reply := new(dns.Msg)
	reply.SetRcode(m, answer.Rcode)
	reply.Authoritative, reply.RecursionAvailable = true, true
	reply.Answer, reply.Ns, reply.Extra = answer.Records, answer.Authority, answer.Extra
	if answer.Outside != "" {
		if code, err := r.follow(ctx, w, m, source, answer.Outside, reply); err != nil || code != dns.RcodeSuccess {
			return code, err
		}
	}
	return dns.RcodeSuccess, w.WriteMsg(reply)
}

// follow adds to a reply what the next plugin knows of the name that an alias stands for.
func (r *resolver) follow(ctx context.Context, w dns.ResponseWriter, m *dns.Msg, source netip.Addr, name string, reply *dns.Msg) (int, error) {
	question := m.Copy()
	question.Question[0].Name = name
	heard := nonwriter.New(w)
	code, err := r.outside(ctx, heard, question, source)
	if err != nil || heard.Msg == nil {
		if code == dns.RcodeSuccess {
			code = dns.RcodeServerFailure
		}
		return code, err
	}
	reply.Rcode = heard.Msg.Rcode
	reply.Answer, reply.Ns = append(reply.Answer, heard.Msg.Answer...), heard.Msg.Ns
	reply.Truncated = heard.Msg.Truncated
	return dns.RcodeSuccess, nil
}

// outside asks the next plugin, for as many questions of a source as it may have at once.
func (r *resolver) outside(ctx context.Context, w dns.ResponseWriter, m *dns.Msg, source netip.Addr) (int, error) {
	if !r.begin(source) {
		r.observe(limited)
		return dns.RcodeRefused, nil
	}
	defer r.end(source)
	r.observe(names.Outside)
	return plugin.NextOrFailure(r.Name(), r.next, ctx, w, m)
}

func (r *resolver) begin(source netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[source] >= outsideAtOnce {
		return false
	}
	r.waiting[source]++
	return true
}

func (r *resolver) end(source netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[source]--; r.waiting[source] == 0 {
		delete(r.waiting, source)
	}
}
