package preflight

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Problem is one thing that is in the way of a cloud on this machine.
type Problem struct {
	// Check is the short name of what was looked at: "root", "capability", "kernel", "package", "port"...
	Check string
	// What is wrong.
	What string
	// Remedy is what to do about it.
	Remedy string
}

// String is "What: Remedy".
func (p Problem) String() string { return p.What + ": " + p.Remedy }

// Error joins problems into one error, one a line; nil when there are none.
func Error(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = "  - " + p.String()
	}
	return errors.New("this machine is not ready for a cloud:\n" + strings.Join(lines, "\n"))
}

// Options say what the cloud is going to use. What is zero is not looked at, except where a default is named.
type Options struct {
	// StateDir is the folder of the cloud's state. It need not exist; its file system must have MinDisk bytes free and do
	// as the upper layer of an overlay. Default /var/lib/mni.
	StateDir string
	// MinDisk is how many bytes must be free under StateDir. Default DefaultMinDisk.
	MinDisk uint64
	// MinMemory is how many bytes of memory must be available. Default DefaultMinMemory.
	MinMemory uint64
	// Listen are TCP addresses that must be free. The address itself need not be on the machine yet.
	Listen []netip.AddrPort
	// ListenUDP are UDP addresses that must be free.
	ListenUDP []netip.AddrPort
	// Ranges are address ranges that only the cloud may use: no interface of another's may have an address in them.
	Ranges []netip.Prefix
	// OwnLinks are prefixes of the names of interfaces that are the cloud's own, so that their addresses do no harm.
	OwnLinks []string
	// Programs that must be on PATH besides those of the Debian packages.
	Programs []string
}

// Defaults of Options.
const (
	// DefaultStateDir is the folder of the clouds' state.
	DefaultStateDir = "/var/lib/mni"
	// DefaultMinDisk is 5 GiB: the images, etcd and a little room for the tenants' writes.
	DefaultMinDisk = 5 << 30
	// DefaultMinMemory is 1.5 GiB: what two idle nodes and their control plane take.
	DefaultMinMemory = 3 << 29
)

// Check looks at everything and returns what is in the way, in the order in which to repair it. An empty result means that
// the cloud can be started.
func Check(ctx context.Context, options Options) []Problem {
	return check(ctx, options, machine())
}

// check is Check on any machine.
func check(ctx context.Context, o Options, m probes) []Problem {
	if o.StateDir == "" {
		o.StateDir = DefaultStateDir
	}
	if o.MinDisk == 0 {
		o.MinDisk = DefaultMinDisk
	}
	if o.MinMemory == 0 {
		o.MinMemory = DefaultMinMemory
	}
	if uid := m.euid(); uid != 0 {
		// Everything else would only say the same again.
		return []Problem{{
			Check: "root", What: fmt.Sprintf("running as user %d, not as root", uid), Remedy: "run it again with sudo",
		}}
	}
	var problems []Problem
	problems = append(problems, checkPackages(ctx, m)...)
	problems = append(problems, checkPrograms(o, m)...)
	problems = append(problems, checkFiles(m)...)
	lacking := checkCapabilities(m)
	problems = append(problems, lacking...)
	if len(lacking) == 0 {
		// Without the capabilities every attempt fails, whatever the kernel can do.
		problems = append(problems, checkKernel(o, m)...)
	}
	problems = append(problems, checkDisk(o, m)...)
	problems = append(problems, checkMemory(o, m)...)
	problems = append(problems, checkPorts(ctx, o, m)...)
	problems = append(problems, checkRanges(o, m)...)
	return problems
}
