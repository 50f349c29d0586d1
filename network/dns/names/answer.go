package names

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/miekg/dns"
)

// TTL of what the cloud itself knows, in seconds: how long a workload may believe a name that has changed.
const TTL = 5

// Kind says what became of a question.
type Kind string

// Kinds of questions. Only Outside is not answered here.
const (
	// Refused: who asks is in no tenant's VPC, or it asks for what nobody gets.
	Refused Kind = "refused"
	// Own: a name of the VPC, or one of the domain that it does not have.
	Own Kind = "vpc"
	// Service: a name of the cluster's domain.
	Service Kind = "service"
	// Reverse: the name of an address of the VPC, or of a range that is nobody's in public.
	Reverse Kind = "reverse"
	// Outside: for the resolvers of the machine.
	Outside Kind = "outside"
)

// Answer is what is answered, but for the question.
type Answer struct {
	Kind    Kind
	Rcode   int
	Records []dns.RR
	// Authority is the SOA record of an answer without records (RFC 2308).
	Authority []dns.RR
	// Extra are the addresses of what SRV records lead to.
	Extra []dns.RR
	// Outside is the name, reached by aliases (CNAME, which are among the records), that the machine's resolvers are yet to be asked for.
	Outside string
}

// aliases is how many aliases are followed.
const aliases = 8

// Answer answers a question of who has an infrastructure address. The name may be in any case. Aliases are followed, by what the same VPC may know.
func (d *Directory) Answer(source netip.Addr, q dns.Question) Answer {
	first := d.answer(source, q)
	last, followed := first, 0
	var records []dns.RR
	for last.alias() != "" && q.Qtype != dns.TypeCNAME && q.Qtype != dns.TypeANY {
		if followed++; followed > aliases {
			return Answer{Kind: first.Kind, Rcode: dns.RcodeServerFailure}
		}
		records = append(records, last.Records...)
		target := last.alias()
		if last = d.answer(source, dns.Question{Name: target, Qtype: q.Qtype, Qclass: q.Qclass}); last.Kind == Outside {
			return Answer{Kind: first.Kind, Records: records, Outside: target}
		}
	}
	last.Kind, last.Records = first.Kind, append(records, last.Records...)
	return last
}

// alias is what the name that was asked for stands for, if it is an alias.
func (a Answer) alias() string {
	if len(a.Records) == 1 {
		if record, ok := a.Records[0].(*dns.CNAME); ok {
			return record.Target
		}
	}
	return ""
}

func (d *Directory) answer(source netip.Addr, q dns.Question) Answer {
	vpc := d.VPCs[d.Sources[source]]
	if vpc == nil || q.Qclass != dns.ClassINET || q.Qtype == dns.TypeAXFR || q.Qtype == dns.TypeIXFR {
		return Answer{Kind: Refused, Rcode: dns.RcodeRefused}
	}
	name := strings.ToLower(q.Name)
	switch {
	case dns.IsSubDomain(vpc.Zone, name):
		return vpc.answer(Own, vpc.Zone, name, q, vpc.Hosts)
	case dns.IsSubDomain(Domain, name):
		return vpc.answer(Own, Domain, name, q, nil)
	case dns.IsSubDomain(ClusterDomain, name):
		return vpc.answer(Service, ClusterDomain, name, q, vpc.Services)
	case dns.IsSubDomain("arpa.", name):
		return vpc.reverse(name, q)
	}
	return Answer{Kind: Outside}
}

// answer answers from a table of a zone.
func (v *VPC) answer(kind Kind, zone, name string, q dns.Question, table map[string][]netip.Addr) Answer {
	a := Answer{Kind: kind}
	addresses, exists := table[name]
	ports, alias := v.Ports[name], v.Aliases[name] // all of them are Services'
	switch {
	case name == zone && q.Qtype == dns.TypeSOA:
		a.Records = []dns.RR{soa(zone)}
	case alias != "":
		a.Records = []dns.RR{&dns.CNAME{Hdr: header(q.Name, dns.TypeCNAME), Target: alias}}
	case len(ports) > 0 && (q.Qtype == dns.TypeSRV || q.Qtype == dns.TypeANY):
		for _, port := range ports {
			a.Records = append(a.Records, &dns.SRV{Hdr: header(q.Name, dns.TypeSRV), Weight: 1, Port: port.Port, Target: port.Target})
			for _, address := range table[port.Target] {
				a.Extra = append(a.Extra, &dns.A{Hdr: header(port.Target, dns.TypeA), A: address.AsSlice()})
			}
		}
	case exists && (q.Qtype == dns.TypeA || q.Qtype == dns.TypeANY):
		for _, address := range addresses {
			a.Records = append(a.Records, &dns.A{Hdr: header(q.Name, dns.TypeA), A: address.AsSlice()})
		}
	case !exists && len(ports) == 0 && name != zone && !v.above[name]:
		a.Rcode = dns.RcodeNameError
	}
	if len(a.Records) == 0 {
		a.Authority = []dns.RR{soa(zone)}
	}
	return a
}

// reverse answers for the name of an address. Addresses of a VPC mean nothing to a resolver outside, and those of private ranges
// would tell it, or the tenant, of what is none of theirs (RFC 6303).
func (v *VPC) reverse(name string, q dns.Question) Answer {
	address, err := netip.ParseAddr(dnsutil.ExtractAddressFromReverse(name))
	if err == nil {
		if names := v.byAddress[address]; len(names) > 0 {
			a := Answer{Kind: Reverse}
			if q.Qtype == dns.TypePTR || q.Qtype == dns.TypeANY {
				for _, n := range names {
					a.Records = append(a.Records, &dns.PTR{Hdr: header(q.Name, dns.TypePTR), Ptr: n})
				}
				return a
			}
			a.Authority = []dns.RR{soa(parent(name))}
			return a
		}
		for _, subnet := range v.Subnets {
			if subnet.Contains(address) {
				return Answer{Kind: Reverse, Rcode: dns.RcodeNameError, Authority: []dns.RR{soa(parent(name))}}
			}
		}
	}
	for _, zone := range privateZones {
		switch {
		case name == zone:
			return Answer{Kind: Reverse, Authority: []dns.RR{soa(zone)}}
		case dns.IsSubDomain(zone, name):
			return Answer{Kind: Reverse, Rcode: dns.RcodeNameError, Authority: []dns.RR{soa(zone)}}
		}
	}
	return Answer{Kind: Outside}
}

// privateZones are the reverse zones of ranges that are nobody's in public, or the cloud's own.
var privateZones = func() []string {
	zones := []string{
		"10.in-addr.arpa.", "168.192.in-addr.arpa.", "254.169.in-addr.arpa.", "127.in-addr.arpa.", "0.in-addr.arpa.",
		"18.198.in-addr.arpa.", "19.198.in-addr.arpa.", "2.0.192.in-addr.arpa.",
		"c.f.ip6.arpa.", "d.f.ip6.arpa.", "8.e.f.ip6.arpa.", "9.e.f.ip6.arpa.", "a.e.f.ip6.arpa.", "b.e.f.ip6.arpa.",
	}
	for i := 16; i < 32; i++ {
		zones = append(zones, strconv.Itoa(i)+".172.in-addr.arpa.")
	}
	for i := 64; i < 128; i++ {
		zones = append(zones, strconv.Itoa(i)+".100.in-addr.arpa.")
	}
	return zones
}()

func header(name string, kind uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: TTL}
}

// soa is a zone's SOA record. There is nothing that its serial could be used for.
func soa(zone string) dns.RR {
	return &dns.SOA{
		Hdr: header(zone, dns.TypeSOA), Ns: "ns.dns." + zone, Mbox: "hostmaster." + zone,
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: TTL,
	}
}
