package datapath

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
)

// storm is what an interface sends to begin one flow after another: a frame whose ports and remote address are changed in place.
type storm struct {
	p            *pod
	frame, out   []byte
	began, drops int
}

func newStorm(p *pod) *storm {
	frame := p.udp(1, "198.51.100.1:1").frame()
	frame[40], frame[41] = 0, 0 // no checksum
	return &storm{p: p, frame: frame, out: make([]byte, len(frame)+256)}
}

// begins sends from a port to a remote side, without a look at what becomes of it.
func (s *storm) begins(port uint16, remote [4]byte, remotePort uint16) {
	copy(s.frame[30:], remote[:])
	var sum uint32
	s.frame[24], s.frame[25] = 0, 0
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(s.frame[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(s.frame[24:], ^uint16(sum+sum>>16))
	binary.BigEndian.PutUint16(s.frame[34:], port)
	binary.BigEndian.PutUint16(s.frame[36:], remotePort)
	options := &ebpf.RunOptions{Data: s.frame, DataOut: s.out, Context: skBuff{ifindex: uint32(s.p.ifindex)}}
	action, err := s.p.node.program(bpfProgPodEgress).Run(options)
	require.NoError(s.p.node.cloud.t, err)
	if action == 7 {
		s.began++
	} else {
		s.drops++
	}
}

// The table of flows is filled twice over by flows that nobody goes on with, some of them to the same servers: those that are in use lose
// neither half, and keep their port. https://github.com/cilium/cilium/issues/34833 https://github.com/cilium/cilium/issues/29305
func TestAStormOfFlowsAtTwiceTheTablesSizeBreaksNoneThatStillSends(t *testing.T) {
	const entries = 16_384 // so that all of the table is another's within less than a second, as it is of a full-size one in a worse storm
	c := tenantsAlone(t, func(c *Config) { c.NATEntries = entries })
	g := newGateway(c.cloud, 1001)
	n := c.nodes[0]
	n.unforetold = true
	for first := 1024; first < 1024+8*PortBlockSize; first += PortBlockSize {
		g.gives(n, block(shared, first), 1001)
	}
	servers := [][4]byte{{198, 51, 100, 9}, {198, 51, 100, 10}}
	type keeper struct {
		port, external uint16
		remote         string
		frame          []byte
		oneWay         bool // it is not answered before the end
	}
	s := newStorm(n.pod(7, 1001, "10.0.1.13"))
	var keepers []*keeper
	for i := range uint16(48) {
		k := &keeper{port: 4000 + i, remote: []string{"198.51.100.9:53", "198.51.100.10:53"}[i%2], oneWay: i%3 == 0}
		k.frame = c.a1.udp(k.port, k.remote).frame()
		k.external = c.a1.sends(k.frame).leaves().externalPort()
		n.gets(fromOutside(k.remote, at(shared, k.external)).frame()).reaches(c.a1)
		keepers = append(keepers, k)
	}
	goOn := func(answered bool) {
		t.Helper()
		for _, k := range keepers {
			o := c.a1.sends(k.frame)
			require.Zero(t, o.drop, "after %d flows: %s; one way %t", s.began, o.drop, k.oneWay)
			require.Equal(t, k.external, o.leaves().externalPort(), "one way %t", k.oneWay)
			if answered || !k.oneWay {
				n.gets(fromOutside(k.remote, at(shared, k.external)).frame()).reaches(c.a1).is(k.remote, at("10.0.1.11", k.port))
			}
		}
	}
	for i := 0; s.began < 2*entries; i++ { // of two entries at least each
		remote, port := [4]byte{198, 51, byte(100 + i>>16&3), byte(i)}, uint16(1+i>>8)
		if i%4 == 0 { // the keepers' own servers have no free port in the end
			remote, port = servers[i/4%2], 53
		}
		s.begins(uint16(1024+i*7), remote, port)
		if i%500 == 0 {
			goOn(false)
		}
	}
	goOn(true)
	fill, err := n.Fill()
	require.NoError(t, err)
	require.Greater(t, fill[bpfMapNatFlows].Entries, entries*9/10, "the table was full")
	t.Logf("%d flows began, %d found no port", s.began, s.drops)
}
