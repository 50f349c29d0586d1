package preflight

import (
	"context"
	"net/netip"
	"os"
	"os/exec"

	"github.com/mnicloud/mnicloud/distro/packages"
)

// probes are all looks at the machine, so that each decision can be tested without a machine that lacks something.
type probes struct {
	euid            func() int
	missingPackages func(ctx context.Context) ([]packages.Package, error)
	program         func(name string) error
	// file looks at a file of the machine.
	file func(path string) error
	// capabilities is the effective set of this process, a bit each (capabilities(7)).
	capabilities func() (uint64, error)
	// features are attempts to use what the kernel must have, in the order in which they are made.
	features []feature
	// freeDisk is how many bytes are free on the file system of the nearest folder that exists.
	freeDisk func(path string) (uint64, error)
	// availableMemory in bytes.
	availableMemory func() (uint64, error)
	// listen tries to take an address; network is tcp or udp.
	listen func(ctx context.Context, network string, at netip.AddrPort) error
	// holder names the process that has a port, when that can be found out.
	holder func(network string, port uint16) string
	// addresses are those of the machine's interfaces, by interface.
	addresses func() (map[string][]netip.Prefix, error)
}

// feature is something the kernel must be able to do.
type feature struct {
	// name as a sentence's subject: "eBPF type information (BTF)".
	name string
	// remedy when it cannot.
	remedy string
	// try returns why it cannot be done. stateDir is where the cloud keeps its state.
	try func(stateDir string) error
}

// machine are the probes of the real machine.
func machine() probes {
	return probes{
		euid: os.Geteuid,
		missingPackages: func(ctx context.Context) ([]packages.Package, error) {
			return packages.Missing(ctx, packages.Runtime())
		},
		program: func(name string) error {
			_, err := exec.LookPath(name)
			return err
		},
		file: func(path string) error {
			_, err := os.Stat(path)
			return err
		},
		capabilities:    effectiveCapabilities,
		features:        kernelFeatures(),
		freeDisk:        freeDisk,
		availableMemory: availableMemory,
		listen:          tryListen,
		holder:          portHolder,
		addresses:       machineAddresses,
	}
}
