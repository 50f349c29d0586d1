package bird

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program is BIRD's path; the package's tests need it (mni host install).
func program(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("bird")
	require.NoError(t, err, "Debian's package bird2 is not installed")
	return path
}

// requireAccepted lets BIRD read the configuration.
func requireAccepted(t testing.TB, c Config) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bird.conf")
	require.NoError(t, os.WriteFile(file, []byte(c.Text()), 0o600))
	require.NoError(t, Check(t.Context(), program(t), file), c.Text())
}

func peer(name, address string) Peer {
	return Peer{
		Name: name, Address: netip.MustParseAddr(address), Port: 179, ASN: 64513, LocalASN: 64512,
		HoldTime: 90 * time.Second, RestartTime: 120 * time.Second,
	}
}

// randomConfig is any Config, of the given source.
func randomConfig(r *rand.Rand) Config {
	address := func() netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())})
	}
	prefix := func() netip.Prefix { return netip.PrefixFrom(address(), 8+r.IntN(25)).Masked() }
	c := Config{Address: address(), LogFile: "/run/bird.log"}
	for range r.IntN(5) {
		c.Aggregates = append(c.Aggregates, prefix())
	}
	for range r.IntN(20) {
		c.Hosts = append(c.Hosts, address())
	}
	for i := range r.IntN(4) {
		p := peer(strings.Repeat("p", 1+r.IntN(40))+fmt.Sprintf(".x-%d", i), address().String())
		p.ASN, p.LocalASN = 1+r.Uint32N(1<<32-2), 1+r.Uint32N(1<<32-2)
		p.Port, p.Multihop = uint16(1+r.IntN(65535)), uint8(r.IntN(256))
		p.HoldTime = time.Duration(3+r.IntN(65533)) * time.Second
		p.RestartTime = time.Duration(1+r.IntN(1800)) * time.Second
		if r.IntN(2) == 0 {
			p.BFD = &BFD{Interval: time.Duration(50+r.IntN(60000)) * time.Millisecond, Multiplier: uint8(2 + r.IntN(49))}
		}
		if r.IntN(2) == 0 {
			password := make([]byte, 1+r.IntN(80))
			for i := range password {
				password[i] = byte(' ' + r.IntN('~'-' '+1))
			}
			if p.Password = string(password); CheckPassword(p.Password) != nil {
				p.Password = ""
			}
		}
		for range r.IntN(6) {
			e := Export{Match: prefix(), Hosts: r.IntN(2) == 0}
			for range r.IntN(4) {
				e.Communities = append(e.Communities, [2]uint16{uint16(r.Uint32()), uint16(r.Uint32())})
				e.LargeCommunities = append(e.LargeCommunities, [3]uint32{r.Uint32(), r.Uint32(), r.Uint32()})
			}
			if r.IntN(2) == 0 {
				v := r.Uint32()
				e.MED, e.LocalPreference = &v, &v
			}
			p.Exports = append(p.Exports, e)
		}
		c.Peers = append(c.Peers, p)
	}
	return c
}

func TestBIRDAcceptsWhateverIsWritten(t *testing.T) {
	requireAccepted(t, Config{Address: netip.MustParseAddr("192.0.2.1"), LogFile: "/run/bird.log"})
	for seed := range uint64(60) {
		requireAccepted(t, randomConfig(rand.New(rand.NewPCG(seed, 0))))
	}
}

// A timestamp in a template, and tables iterated at random, made BIRD reload for nothing.
// https://github.com/projectcalico/calicoctl/issues/136
func TestTheSameConfigurationIsWrittenByteForByte(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := randomConfig(r)
		text := c.Text()
		for range 5 {
			r.Shuffle(len(c.Aggregates), func(i, j int) { c.Aggregates[i], c.Aggregates[j] = c.Aggregates[j], c.Aggregates[i] })
			r.Shuffle(len(c.Hosts), func(i, j int) { c.Hosts[i], c.Hosts[j] = c.Hosts[j], c.Hosts[i] })
			r.Shuffle(len(c.Peers), func(i, j int) { c.Peers[i], c.Peers[j] = c.Peers[j], c.Peers[i] })
			require.Equal(t, text, c.Text())
		}
		c.Hosts, c.Aggregates = slices.Concat(c.Hosts, c.Hosts), slices.Concat(c.Aggregates, c.Aggregates)
		require.Equal(t, text, c.Text(), "what is said twice is written once")
	}
}

func TestAConfigurationThatBIRDDoesNotAcceptIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bird.conf")
	require.NoError(t, os.WriteFile(file, []byte("protocol nonsense { }\n"), 0o600))
	err := Check(t.Context(), program(t), file)
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "syntax error")
}

func TestAPasswordCannotLeaveItsString(t *testing.T) {
	for password, problem := range map[string]string{
		"": "empty", strings.Repeat("x", 81): "80 octets", `a"; router id 1.2.3.4; #`: "printable", "a\nb": "printable", "ä": "printable", "tab\t": "printable",
	} {
		require.ErrorContains(t, CheckPassword(password), problem, password)
	}
	for _, password := range []string{"x", strings.Repeat("x", 80), `\`, `'`, `{ }; # //`, " a "} {
		require.NoError(t, CheckPassword(password))
		c := Config{Address: netip.MustParseAddr("192.0.2.1"), LogFile: "/run/bird.log", Peers: []Peer{peer("a", "192.0.2.2")}}
		c.Peers[0].Password = password
		requireAccepted(t, c)
	}
}
