package preflight

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/packages"
)

// ready is a machine on which nothing is in the way.
func ready() probes {
	return probes{
		euid:            func() int { return 0 },
		missingPackages: func(context.Context) ([]packages.Package, error) { return nil, nil },
		program:         func(string) error { return nil },
		file:            func(string) error { return nil },
		capabilities:    func() (uint64, error) { return 1<<41 - 1, nil },
		freeDisk:        func(string) (uint64, error) { return 100 << 30, nil },
		availableMemory: func() (uint64, error) { return 16 << 30, nil },
		listen:          func(context.Context, string, netip.AddrPort) error { return nil },
		holder:          func(string, uint16) string { return "" },
		addresses:       func() (map[string][]netip.Prefix, error) { return nil, nil },
	}
}

var allOptions = Options{
	Listen:    []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:6443")},
	ListenUDP: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:47890")},
	Ranges:    []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25")},
	OwnLinks:  []string{"mni-"},
	Programs:  []string{"mni-kube"},
}

func TestAMachineThatHasEverythingHasNoProblem(t *testing.T) {
	problems := check(t.Context(), allOptions, ready())
	require.Empty(t, problems)
	require.NoError(t, Error(problems))
}

func TestEachProblemNamesWhatIsWrongAndTheRemedy(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(*probes)
		check  string
		what   []string
		remedy string
	}{
		"an ordinary user": {
			spoil: func(m *probes) { m.euid = func() int { return 1000 } },
			check: "root", what: []string{"user 1000", "not as root"}, remedy: "sudo",
		},
		"a missing package": {
			spoil: func(m *probes) {
				m.missingPackages = func(context.Context) ([]packages.Package, error) { return packages.Runtime()[:1], nil }
			},
			check: "package", what: []string{packages.Runtime()[0].Name, packages.Runtime()[0].Reason}, remedy: "mni host install",
		},
		"no package database": {
			spoil: func(m *probes) {
				m.missingPackages = func(context.Context) ([]packages.Package, error) { return nil, errors.New("dpkg-query not found") }
			},
			check: "package", what: []string{"dpkg-query not found"}, remedy: "containerd",
		},
		"a program that is not built": {
			spoil: func(m *probes) { m.program = func(string) error { return os.ErrNotExist } },
			check: "program", what: []string{"mni-kube"}, remedy: "make build",
		},
		"no file of hosts": { // as debootstrap leaves a file system
			spoil: func(m *probes) { m.file = func(string) error { return os.ErrNotExist } },
			check: "file", what: []string{"/etc/hosts", "containerd"}, remedy: "127.0.0.1 localhost",
		},
		"no CAP_NET_ADMIN": {
			spoil: func(m *probes) {
				m.capabilities = func() (uint64, error) { return 1<<41 - 1 - 1<<unix.CAP_NET_ADMIN, nil }
			},
			check: "capability", what: []string{"CAP_NET_ADMIN", "interfaces"}, remedy: "capability",
		},
		"unreadable capabilities": {
			spoil: func(m *probes) { m.capabilities = func() (uint64, error) { return 0, os.ErrNotExist } },
			check: "capability", what: []string{"cannot read"}, remedy: "/proc",
		},
		"a kernel without veth": {
			spoil: func(m *probes) {
				m.features = []feature{{name: "veth pairs", remedy: "CONFIG_VETH", try: func(string) error { return unix.EOPNOTSUPP }}}
			},
			check: "kernel", what: []string{"veth pairs", "not supported"}, remedy: "CONFIG_VETH",
		},
		"a full disk": {
			spoil: func(m *probes) { m.freeDisk = func(string) (uint64, error) { return 1 << 29, nil } },
			check: "disk", what: []string{"0.5 GiB", "5.0 GiB", DefaultStateDir}, remedy: "free some space",
		},
		"an unreadable disk": {
			spoil: func(m *probes) { m.freeDisk = func(string) (uint64, error) { return 0, unix.EIO } },
			check: "disk", what: []string{"input/output error"}, remedy: "file system",
		},
		"too little memory": {
			spoil: func(m *probes) { m.availableMemory = func() (uint64, error) { return 1 << 30, nil } },
			check: "memory", what: []string{"1.0 GiB", "1.5 GiB"}, remedy: "fewer nodes",
		},
		"unreadable memory": {
			spoil: func(m *probes) { m.availableMemory = func() (uint64, error) { return 0, os.ErrNotExist } },
			check: "memory", what: []string{"cannot tell"}, remedy: "/proc",
		},
		"a TCP port in use": {
			spoil: func(m *probes) {
				m.listen = func(_ context.Context, network string, _ netip.AddrPort) error {
					if network == "tcp" {
						return fmt.Errorf("listen: %w", unix.EADDRINUSE)
					}
					return nil
				}
				m.holder = func(string, uint16) string { return "apache2 (process 12)" }
			},
			check: "port", what: []string{"tcp port 6443", "192.0.2.1", "apache2 (process 12)"}, remedy: "stop it",
		},
		"a UDP port in use by nobody we can name": {
			spoil: func(m *probes) {
				m.listen = func(_ context.Context, network string, _ netip.AddrPort) error {
					if network == "udp" {
						return fmt.Errorf("listen: %w", unix.EADDRINUSE)
					}
					return nil
				}
			},
			check: "port", what: []string{"udp port 47890", "another process"}, remedy: "stop it",
		},
		"an address that cannot be listened on": {
			spoil: func(m *probes) {
				m.listen = func(_ context.Context, network string, _ netip.AddrPort) error {
					if network == "udp" {
						return unix.EACCES
					}
					return nil
				}
			},
			check: "port", what: []string{"cannot listen", "permission denied"}, remedy: "network",
		},
		"an address range in use by another interface": {
			spoil: func(m *probes) {
				m.addresses = func() (map[string][]netip.Prefix, error) {
					return map[string][]netip.Prefix{
						"mni-default": {netip.MustParsePrefix("192.0.2.1/25")}, // the cloud's own
						"eth1":        {netip.MustParsePrefix("192.0.2.77/24")},
					}, nil
				}
			},
			check: "range", what: []string{"eth1", "192.0.2.77/24", "192.0.2.0/25"}, remedy: "--instance",
		},
		"unreadable addresses": {
			spoil: func(m *probes) {
				m.addresses = func() (map[string][]netip.Prefix, error) { return nil, unix.EPERM }
			},
			check: "range", what: []string{"cannot list"}, remedy: "network",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := ready()
			c.spoil(&m)
			problems := check(t.Context(), allOptions, m)
			require.Len(t, problems, 1, "%v", problems)
			require.Equal(t, c.check, problems[0].Check)
			for _, words := range c.what {
				require.Contains(t, problems[0].What, words)
			}
			require.Contains(t, problems[0].Remedy, c.remedy)
			require.ErrorContains(t, Error(problems), problems[0].What)
			require.ErrorContains(t, Error(problems), problems[0].Remedy)
		})
	}
}

func TestAKernelIsNotBlamedForAMissingCapability(t *testing.T) {
	m := ready()
	m.capabilities = func() (uint64, error) { return 1<<41 - 1 - 1<<unix.CAP_SYS_ADMIN, nil }
	m.features = []feature{{name: "anything", try: func(string) error { return unix.EPERM }}}
	problems := check(t.Context(), Options{}, m)
	require.Len(t, problems, 1)
	require.Equal(t, "capability", problems[0].Check)
}

func TestCapSysResourceIsNotRequired(t *testing.T) {
	m := ready()
	m.capabilities = func() (uint64, error) { return 1<<41 - 1 - 1<<unix.CAP_SYS_RESOURCE, nil }
	require.Empty(t, check(t.Context(), allOptions, m))
}

func TestWhatIsNotAskedForIsNotLookedAt(t *testing.T) {
	m := ready()
	m.listen = func(context.Context, string, netip.AddrPort) error { return unix.EADDRINUSE }
	m.addresses = func() (map[string][]netip.Prefix, error) { return nil, unix.EPERM }
	require.Empty(t, check(t.Context(), Options{}, m))
}

func TestEveryKernelFeatureHasANameARemedyAndAnAttempt(t *testing.T) {
	features := kernelFeatures()
	require.NotEmpty(t, features)
	for _, f := range features {
		require.NotEmpty(t, f.name)
		require.NotEmpty(t, f.remedy, f.name)
		require.NotNil(t, f.try, f.name)
		require.False(t, strings.HasSuffix(f.remedy, "."), f.remedy)
	}
}
