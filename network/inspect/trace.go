package inspect

import (
	"errors"
	"fmt"
	"net/netip"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// Trace is what would become of a packet.
type Trace struct {
	// From, To and Protocol are the packet's.
	From     string `json:"from"`
	To       string `json:"to"`
	Protocol string `json:"protocol"`
	// Steps are the decisions on its way.
	Steps []TraceStep `json:"steps"`
	// Verdict is delivered, dropped, answered (by the gateway), host (given to a node's own stack), outside (it leaves the
	// cloud) or beyond (it goes to a member that is not on this machine).
	Verdict string `json:"verdict"`
	// Reason, Meaning and Remedy are about a drop.
	Reason  string `json:"reason,omitempty"`
	Meaning string `json:"meaning,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
	// Told is what the sender of a dropped packet is told.
	Told string `json:"told,omitempty"`
}

// TraceStep is one decision.
type TraceStep struct {
	// Node on which it is made, and Program that makes it.
	Node    string `json:"node"`
	Program string `json:"program"`
	// Step is its short name, Text says it for people.
	Step string `json:"step"`
	Text string `json:"text"`
}

// Verdicts of a trace.
const (
	VerdictDelivered = "delivered"
	VerdictDropped   = "dropped"
	VerdictAnswered  = "answered"
	VerdictHost      = "host"
	VerdictBeyond    = "beyond"
	VerdictOutside   = "outside"
)

// maxNodes bounds a packet's way: a member never sends on what came from another.
const maxNodes = 4

// tracing is a trace that is being made.
type tracing struct {
	network *Network
	trace   *Trace
	// program and member are where the packet is.
	program string
	member  Member
	// nics are the interfaces of the member.
	nics map[uint32]datapath.NIC
}

// Trace tells what would become of a packet, by running the programs that are attached on a packet that does not exist. Nothing
// is sent and nothing is changed.
func (n *Network) Trace(r Request) (*Trace, error) {
	from, err := n.source(r.From)
	if err != nil {
		return nil, err
	}
	frame, err := r.frame(from.mac, from.gateway, from.address)
	if err != nil {
		return nil, err
	}
	t := &tracing{
		network: n, member: from.member, program: "pod_egress",
		trace: &Trace{From: from.String(), To: end(netip.AddrPortFrom(r.To, r.Port)), Protocol: r.Protocol, Steps: []TraceStep{}},
	}
	packet := datapath.Packet{Ifindex: from.ifindex, Host: from.host, Uplink: from.outside, Frame: frame}
	if from.host {
		t.program = "host_egress"
	}
	if from.outside {
		t.program = "uplink_ingress"
	}
	t.say("packet", "%s sends %s", from, describe(frame))
	for range maxNodes {
		v, err := t.run(packet)
		if err != nil {
			return nil, err
		}
		if v.Drop != 0 || v.Target != datapath.TargetMember {
			return t.trace, t.finish(v, packet.Frame)
		}
		next, here, err := n.memberAt(v.Member)
		if err != nil {
			return nil, err
		}
		what := "Subnet " + n.Objects.subnetName(v.VNI)
		if v.VNI == netv1.OutsideVNI {
			what = "what is for external addresses"
		}
		t.say("tunnel", "goes by VXLAN, VNI %d (%s), to %s (%s)", v.VNI, what, n.Objects.nodeName(v.Member), v.Member)
		if !here {
			t.trace.Verdict = VerdictBeyond
			t.say("beyond", "%s is not on this machine: trace it there", v.Member)
			return t.trace, nil
		}
		sender, err := t.member.address()
		if err != nil {
			return nil, err
		}
		t.member, t.program = next, "vxlan_ingress"
		packet = datapath.Packet{Member: sender, VNI: v.VNI, Frame: v.Frame}
	}
	return nil, errors.New("the packet goes from node to node without an end; this is a fault of the datapath")
}

// run gives the packet to the program where it is, and notes what it decides.
func (t *tracing) run(p datapath.Packet) (v datapath.Verdict, err error) {
	err = t.member.in(func() error {
		tracer, err := datapath.OpenTracer(t.member.PinPath)
		if err != nil {
			return err
		}
		v, err = tracer.Trace(p)
		return errors.Join(err, tracer.Close())
	})
	if err != nil {
		return v, err
	}
	d, err := t.member.open()
	if err != nil {
		return v, err
	}
	t.nics, err = d.NICs.List()
	if err := errors.Join(err, d.Close()); err != nil {
		return v, err
	}
	for i, step := range v.Steps {
		t.say(step.Kind.String(), "%s", t.words(step, p, v, i == len(v.Steps)-1))
	}
	return v, nil
}

// finish notes how the packet ends.
func (t *tracing) finish(v datapath.Verdict, sent []byte) error {
	if v.Drop != 0 {
		t.trace.Verdict = VerdictDropped
		t.trace.Reason, t.trace.Meaning, t.trace.Remedy = v.Drop.String(), v.Drop.Meaning(), v.Drop.Remedy()
		t.say("drop", "dropped: %s (%s)", v.Drop, v.Drop.Meaning())
		if v.Frame != nil {
			_, _, t.trace.Told = packetIn(v.Frame)
			t.say("told", "the sender is told: %s", t.trace.Told)
		}
		return nil
	}
	owners := owners{network: t.network, node: t.member.Name, nics: t.nics}
	switch v.Target {
	case datapath.TargetInterface:
		t.trace.Verdict = VerdictDelivered
		t.say("deliver", "delivered to %s as %s", owners.of(v.Ifindex).Name(), describe(v.Frame))
	case datapath.TargetSender:
		t.trace.Verdict = VerdictAnswered
		t.say("answer", "answered by the Subnet's gateway: %s", describe(v.Frame))
	case datapath.TargetOutside:
		t.trace.Verdict = VerdictOutside
		t.say("outside", "leaves the cloud at %s as %s", t.member.Name, describe(v.Frame))
	case datapath.TargetStack:
		t.trace.Verdict = VerdictHost
		t.say("host", "is for no external address: left to the own stack of %s", t.member.Name)
	case datapath.TargetHost:
		t.trace.Verdict = VerdictHost
		t.say("host", "given to the own stack of %s as %s", t.member.Name, describe(v.Frame))
	default:
		return fmt.Errorf("%s neither dropped nor sent the packet (%s)", t.program, describe(sent))
	}
	return nil
}

func (t *tracing) say(step, format string, args ...any) {
	t.trace.Steps = append(t.trace.Steps, TraceStep{Node: t.member.Name, Program: t.program, Step: step, Text: fmt.Sprintf(format, args...)})
}

// describe is a packet in short.
func describe(frame []byte) string {
	source, destination, what := packetIn(frame)
	return fmt.Sprintf("%s %s > %s", what, end(source), end(destination))
}

// address is a member's on the underlay.
func (m Member) address() (netip.Addr, error) {
	d, err := m.open()
	if err != nil {
		return netip.Addr{}, err
	}
	endpoints, err := d.Endpoints.List()
	if err := errors.Join(err, d.Close()); err != nil {
		return netip.Addr{}, err
	}
	address := hostAddress(endpoints)
	if !address.IsValid() {
		return address, fmt.Errorf("%s does not know its own address yet: its mni-netd has just started", m.Name)
	}
	return address, nil
}

// memberAt finds the member of an address on the underlay among those on this machine.
func (n *Network) memberAt(address netip.Addr) (Member, bool, error) {
	var errs []error
	for _, m := range n.Members {
		own, err := m.address()
		if err == nil && own == address {
			return m, true, nil
		}
		errs = append(errs, err)
	}
	return Member{}, false, errors.Join(errs...)
}
