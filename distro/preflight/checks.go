package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/packages"
)

func checkPackages(ctx context.Context, m probes) []Problem {
	lacking, err := m.missingPackages(ctx)
	if err != nil {
		return []Problem{{Check: "package", What: err.Error(), Remedy: "use Debian 12 or later, or install " + strings.Join(packages.Names(packages.Runtime()), ", ") + " your own way"}}
	}
	var problems []Problem
	for _, p := range lacking {
		problems = append(problems, Problem{
			Check: "package", What: fmt.Sprintf("package %s is missing (%s)", p.Name, p.Reason), Remedy: "run `mni host install`",
		})
	}
	return problems
}

func checkPrograms(o Options, m probes) []Problem {
	var problems []Problem
	for _, name := range o.Programs {
		if err := m.program(name); err != nil {
			problems = append(problems, Problem{
				Check: "program", What: fmt.Sprintf("program %s is not on PATH", name), Remedy: "run `make build`, or put its folder on PATH",
			})
		}
	}
	return problems
}

// checkFiles finds what a file system has that was unpacked and not installed: containerd starts no container without a file of hosts.
func checkFiles(m probes) []Problem {
	const hosts = "/etc/hosts"
	if err := m.file(hosts); err != nil {
		return []Problem{{
			Check: "file", What: fmt.Sprintf("cannot look at %s, which containerd copies into every container: %v", hosts, err),
			Remedy: "make it, with at least the line `127.0.0.1 localhost`",
		}}
	}
	return nil
}

// required are the capabilities the cloud cannot do without. CAP_SYS_RESOURCE is not among them: without it the nodes'
// containerd is told not to lower oom_score_adj. CAP_BPF and CAP_PERFMON (Linux 5.8) are part of CAP_SYS_ADMIN.
var required = []struct {
	bit  uint
	name string
	use  string
}{
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "namespaces, mounts and eBPF"},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "interfaces, routes and eBPF on interfaces"},
	{unix.CAP_NET_RAW, "CAP_NET_RAW", "neighbour discovery"},
	{unix.CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE", "cluster DNS on port 53"},
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "entering other processes' namespaces"},
	{unix.CAP_SYS_CHROOT, "CAP_SYS_CHROOT", "containers' root file systems"},
	{unix.CAP_MKNOD, "CAP_MKNOD", "containers' devices"},
	{unix.CAP_CHOWN, "CAP_CHOWN", "unpacking images"},
	{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE", "unpacking images"},
	{unix.CAP_FOWNER, "CAP_FOWNER", "unpacking images"},
	{unix.CAP_SETUID, "CAP_SETUID", "containers' users"},
	{unix.CAP_SETGID, "CAP_SETGID", "containers' users"},
	{unix.CAP_SETPCAP, "CAP_SETPCAP", "containers' capabilities"},
	{unix.CAP_KILL, "CAP_KILL", "stopping containers"},
}

func checkCapabilities(m probes) []Problem {
	have, err := m.capabilities()
	if err != nil {
		return []Problem{{Check: "capability", What: fmt.Sprintf("cannot read this process's capabilities: %v", err), Remedy: "mount /proc"}}
	}
	var problems []Problem
	for _, c := range required {
		if have&(1<<c.bit) == 0 {
			problems = append(problems, Problem{
				Check: "capability", What: fmt.Sprintf("root lacks %s here (%s)", c.name, c.use),
				Remedy: "run on the machine itself, or give the container or unit that you are in this capability",
			})
		}
	}
	return problems
}

func checkKernel(o Options, m probes) []Problem {
	var problems []Problem
	for _, f := range m.features {
		if err := f.try(o.StateDir); err != nil {
			problems = append(problems, Problem{Check: "kernel", What: fmt.Sprintf("the kernel cannot do %s: %v", f.name, err), Remedy: f.remedy})
		}
	}
	return problems
}

func checkDisk(o Options, m probes) []Problem {
	free, err := m.freeDisk(o.StateDir)
	if err != nil {
		return []Problem{{Check: "disk", What: fmt.Sprintf("cannot tell the free space under %s: %v", o.StateDir, err), Remedy: "look at that file system"}}
	}
	if free < o.MinDisk {
		return []Problem{{
			Check: "disk", What: fmt.Sprintf("only %s are free under %s, the cloud needs %s", gib(free), o.StateDir, gib(o.MinDisk)),
			Remedy: "free some space, or mount a larger disk there",
		}}
	}
	return nil
}

func checkMemory(o Options, m probes) []Problem {
	available, err := m.availableMemory()
	if err != nil {
		return []Problem{{Check: "memory", What: fmt.Sprintf("cannot tell the available memory: %v", err), Remedy: "mount /proc"}}
	}
	if available < o.MinMemory {
		return []Problem{{
			Check: "memory", What: fmt.Sprintf("only %s of memory are available, the cloud needs %s", gib(available), gib(o.MinMemory)),
			Remedy: "stop something, start fewer nodes, or use a larger machine",
		}}
	}
	return nil
}

// gib prints a size in GiB with one decimal.
func gib(bytes uint64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

func checkPorts(ctx context.Context, o Options, m probes) []Problem {
	var problems []Problem
	try := func(network string, at netip.AddrPort) {
		err := m.listen(ctx, network, at)
		switch {
		case err == nil:
		case errors.Is(err, unix.EADDRINUSE):
			who := m.holder(network, at.Port())
			if who == "" {
				who = "another process"
			}
			problems = append(problems, Problem{
				Check: "port", What: fmt.Sprintf("%s port %d of %s is in use by %s", network, at.Port(), at.Addr(), who),
				Remedy: "stop it, or let it listen on an address of its own instead of all",
			})
		default:
			problems = append(problems, Problem{
				Check: "port", What: fmt.Sprintf("cannot listen on %s %s: %v", network, at, err), Remedy: "look at the machine's network",
			})
		}
	}
	for _, at := range o.Listen {
		try("tcp", at)
	}
	for _, at := range o.ListenUDP {
		try("udp", at)
	}
	return problems
}

func checkRanges(o Options, m probes) []Problem {
	if len(o.Ranges) == 0 {
		return nil
	}
	byLink, err := m.addresses()
	if err != nil {
		return []Problem{{Check: "range", What: fmt.Sprintf("cannot list the machine's addresses: %v", err), Remedy: "look at the machine's network"}}
	}
	var problems []Problem
	for _, link := range slices.Sorted(maps.Keys(byLink)) {
		if slices.ContainsFunc(o.OwnLinks, func(prefix string) bool { return strings.HasPrefix(link, prefix) }) {
			continue
		}
		for _, address := range byLink[link] {
			for _, reserved := range o.Ranges {
				if address.Overlaps(reserved) {
					problems = append(problems, Problem{
						Check: "range", What: fmt.Sprintf("interface %s has address %s, inside %s which the cloud uses itself", link, address, reserved),
						Remedy: "give the interface another address, or start the cloud as another instance (--instance NAME)",
					})
				}
			}
		}
	}
	return problems
}
