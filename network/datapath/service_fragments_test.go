package datapath

import (
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// pieces is a datagram's two fragments.
func (p *pod) pieces(s segment) (first, last []byte) {
	body := s.frame()[34:]
	macs := [2]MAC{p.nic.MAC, p.nic.GatewayMAC}
	from, to := s.source.Addr().String(), s.destination.Addr().String()
	return piece(macs, from, to, layers.IPProtocolUDP, body[:40], 0, true), piece(macs, from, to, layers.IPProtocolUDP, body[40:], 40, false)
}

func TestFragmentsToAServiceAndOfItsAnswerFollowTheirFirst(t *testing.T) {
	c := newTenants(t)
	c.service(UDP, "198.19.0.10:53", 0, "198.18.0.12:5353")
	c.serviceIn(7, UDP, "198.19.0.10:53", "10.0.1.12:5353")
	c.serviceIn(7, UDP, "198.19.0.11:53", "10.0.1.11:5353")
	for _, row := range []struct {
		client, backend                *pod
		service, seenClient, inBackend string
	}{
		{c.web1, c.web2, "198.19.0.10:53", "198.18.0.11:4000", "198.18.0.12:5353"},
		{c.a1, c.a2, "198.19.0.10:53", "10.0.1.11:4000", "10.0.1.12:5353"},
		{c.a1, c.a1, "198.19.0.11:53", "169.254.0.1:4000", "10.0.1.11:5353"}, // itself
	} {
		passes := func(from, to *pod, sent segment, source, destination string) {
			t.Helper()
			first, last := from.pieces(sent)
			arrives := func(frame []byte) []byte {
				t.Helper()
				o := from.sends(frame)
				if from != to {
					o = o.then()
				}
				return o.reaches(to).frame[34:]
			}
			joined := append(append([]byte{}, arrives(first)...), arrives(last)...)
			whole := segment{source: addrPortOf(source), destination: addrPortOf(destination), size: sent.size}.frame()
			require.Equal(t, whole[34:], joined, "ports and checksum are those of its new source and destination")
		}
		s := row.client.udp(4000, row.service)
		s.size = 80
		_, last := row.client.pieces(s)
		row.client.sends(last).isDropped(bpfDropReasonDROP_SERVICE_FRAGMENT)
		passes(row.client, row.backend, s, row.seenClient, row.inBackend)
		answer := row.backend.udp(5353, row.seenClient)
		answer.size = 80
		passes(row.backend, row.client, answer, row.service, row.client.nic.Address.String()+":4000")
		tiny := row.client.tcp(4000, row.service, syn).frame()[34:][:16] // RFC 1858
		macs := [2]MAC{row.client.nic.MAC, row.client.nic.GatewayMAC}
		at := s.destination.Addr().String()
		row.client.sends(piece(macs, row.client.nic.Address.String(), at, layers.IPProtocolTCP, tiny, 0, true)).isDropped(bpfDropReasonDROP_MALFORMED)
	}
}
