package datapath

import (
	"net/netip"

	"github.com/gopacket/gopacket/layers"
)

// modelInner is an inside port.
type modelInner struct {
	vpc      uint32
	protocol Protocol
	at       netip.AddrPort
}

// modelPort is an external port.
type modelPort struct {
	protocol Protocol
	external netip.AddrPort
}

// modelFlow is what is known of a flow, in plain Go.
type modelFlow struct {
	pod      *pod
	inner    modelInner
	external netip.AddrPort
	remote   netip.AddrPort
	replied  bool
	finOut   bool
	finIn    bool
	reset    bool
	// since and until are between when its last packet passed, by the model's clock, in seconds.
	since, until int
}

func (f *modelFlow) closed() bool { return f.reset || f.finOut && f.finIn }

func (f *modelFlow) timeout() int {
	switch {
	case f.inner.protocol == UDP && f.replied:
		return 180
	case f.inner.protocol == TCP && f.closed():
		return 10
	case f.inner.protocol == TCP && f.replied:
		return 8000
	}
	return 60
}

func (f *modelFlow) note(flags layers.TCP, in bool, since, until int) {
	f.since, f.until = since, until
	f.replied = f.replied || in
	if f.inner.protocol == TCP {
		f.finOut = f.finOut || flags.FIN && !in
		f.finIn = f.finIn || flags.FIN && in
		f.reset = f.reset || flags.RST
	}
}
