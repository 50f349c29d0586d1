package bird

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Config is all that a node's BIRD is told.
type Config struct {
	// Address is the node's own: the BGP identifier, and the source of sessions for which BIRD wants one said.
	Address netip.Addr
	// LogFile is where BIRD writes what happens; it is rotated at LogSize bytes.
	LogFile string
	// Aggregates are ranges, announced to the peers whose exports match them. The kernel drops what they lead to, unless somebody
	// takes it before: a packet to an address that nobody has must not travel between the node and its router for ever.
	Aggregates []netip.Prefix
	// Hosts are single addresses, announced likewise.
	Hosts []netip.Addr
	// Peers in any order.
	Peers []Peer
}

// LogSize is how large a log file becomes, in bytes, before it replaces the older one.
const LogSize = 1 << 20

// Peer is a router to speak BGP with.
type Peer struct {
	// Name is made of letters, digits, '-' and '.', at most MaxName long, and unique.
	Name          string
	Address       netip.Addr
	Port          uint16
	ASN, LocalASN uint32
	// Multihop is how many hops away the peer may be; 0: on a network that the node is on.
	Multihop uint8
	// Password is for TCP MD5 (RFC 2385); empty: none. See CheckPassword.
	Password string
	// BFD, when not nil, watches the peer.
	BFD *BFD
	// HoldTime and RestartTime (RFC 4271, RFC 4724) in whole seconds.
	HoldTime, RestartTime time.Duration
	// Exports say which of the routes the peer is told; the first that matches a route decides. Others are not told.
	Exports []Export
}

// MaxName is the longest name of a peer: BIRD's symbols are shorter than 64 octets.
const MaxName = 50

// BFD is Bidirectional Forwarding Detection (RFC 5880).
type BFD struct {
	Interval   time.Duration // whole milliseconds
	Multiplier uint8
}

// Export is routes and the attributes with which they are told.
type Export struct {
	// Match is the range of the routes: it alone, or, with Hosts, each /32 in it.
	Match            netip.Prefix
	Hosts            bool
	Communities      [][2]uint16 // RFC 1997
	LargeCommunities [][3]uint32 // RFC 8092
	// LocalPreference and MED; nil: BIRD's default.
	LocalPreference, MED *uint32
}

// maxPassword is the length of a TCP MD5 key in the kernel (TCP_MD5SIG_MAXKEYLEN).
const maxPassword = 80

// CheckPassword says what keeps a password from being used. BIRD's strings know no escapes.
func CheckPassword(password string) error {
	switch {
	case password == "":
		return fmt.Errorf("it is empty")
	case len(password) > maxPassword:
		return fmt.Errorf("it is longer than %d octets", maxPassword)
	case strings.ContainsFunc(password, func(r rune) bool { return r < ' ' || r > '~' || r == '"' }):
		return fmt.Errorf(`it may have printable ASCII characters other than '"' only`)
	}
	return nil
}

// Text is the configuration file. The same Config gives the same text, in whatever order its parts came.
func (c Config) Text() string {
	var b strings.Builder
	write := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	write("# Written by mni-bgpd; changes are overwritten.\n")
	write("log \"%[1]s\" %[2]d \"%[1]s.1\" all;\n", c.LogFile, LogSize)
	write("router id %s;\n", c.Address)
	write("timeformat protocol iso long;\n")
	write("debug protocols { states };\n")
	// A peer keeps the routes of a restarting speaker for its restart time; a peer that does not come back holds the others up
	// for this long.
	write("graceful restart wait 10;\n\n")
	write("protocol device { }\n\n")
	write("protocol bfd { accept ipv4; }\n\n")
	aggregates := slices.Clone(c.Aggregates)
	slices.SortFunc(aggregates, netip.Prefix.Compare)
	hosts := slices.Clone(c.Hosts)
	slices.SortFunc(hosts, netip.Addr.Compare)
	write("protocol static 'aggregates' {\n\tipv4;\n")
	for _, p := range slices.Compact(aggregates) {
		write("\troute %s blackhole;\n", p)
	}
	write("}\n\nprotocol static 'hosts' {\n\tipv4 { preference 150; };\n") // below that of aggregates, which may be a /32
	for _, a := range slices.Compact(hosts) {
		write("\troute %s/32 blackhole;\n", a)
	}
	write("}\n\nprotocol kernel 'null' {\n\tpersist;\n\tipv4 { import none; export where proto = \"aggregates\"; };\n}\n")
	peers := slices.Clone(c.Peers)
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
	for i := range peers {
		peers[i].write(c.Address, write)
	}
	return b.String()
}

func (p *Peer) write(own netip.Addr, write func(format string, args ...any)) {
	write("\nfilter 'to-%s' {\n", p.Name)
	for _, e := range p.Exports {
		match := e.Match.String()
		if e.Hosts {
			match += "{32,32}"
		}
		write("\tif net ~ [ %s ] then {\n", match)
		for _, c := range e.Communities {
			write("\t\tbgp_community.add((%d,%d));\n", c[0], c[1])
		}
		for _, c := range e.LargeCommunities {
			write("\t\tbgp_large_community.add((%d,%d,%d));\n", c[0], c[1], c[2])
		}
		if e.LocalPreference != nil {
			write("\t\tbgp_local_pref = %d;\n", *e.LocalPreference)
		}
		if e.MED != nil {
			write("\t\tbgp_med = %d;\n", *e.MED)
		}
		write("\t\taccept;\n\t}\n")
	}
	write("\treject;\n}\n\nprotocol bgp '%s%s' {\n", protocolPrefix, p.Name)
	local := ""
	if p.BFD != nil && (p.Multihop > 0 || p.ASN == p.LocalASN) { // BFD over several hops needs a source (RFC 5883)
		local = own.String() + " "
	}
	write("\tlocal %sas %d;\n\tneighbor %s port %d as %d;\n", local, p.LocalASN, p.Address, p.Port, p.ASN)
	switch {
	case p.Multihop > 0:
		write("\tmultihop %d;\n", p.Multihop)
	case p.ASN != p.LocalASN:
		write("\tdirect;\n")
	}
	if p.Password != "" {
		write("\tpassword \"%s\";\n", p.Password)
	}
	if p.BFD != nil {
		write("\tbfd { interval %d ms; multiplier %d; };\n", p.BFD.Interval.Milliseconds(), p.BFD.Multiplier)
	}
	hold := int(p.HoldTime / time.Second)
	write("\thold time %d;\n\tkeepalive time %d;\n", hold, max(hold/3, 1))
	write("\tconnect delay time 1;\n\tconnect retry time 5;\n\terror wait time 1, 30;\n")
	write("\tgraceful restart on;\n\tgraceful restart time %d;\n", int(p.RestartTime/time.Second))
	// What a peer announces is counted, up to a bound, and not used.
	write("\tipv4 {\n\t\timport keep filtered;\n\t\treceive limit %d action block;\n\t\timport none;\n", MaxReceived)
	write("\t\tnext hop self;\n\t\texport filter 'to-%s';\n\t};\n}\n", p.Name)
}

// MaxReceived is up to how many of a peer's routes are kept, to be counted.
const MaxReceived = 1000

// protocolPrefix keeps peers' names apart from those of other protocols.
const protocolPrefix = "peer-"
