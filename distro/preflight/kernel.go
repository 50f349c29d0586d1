package preflight

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/spawn"
)

// Debian's own kernel (linux-image-amd64, 6.1) has everything; other kernels are told what they lack.
const debianKernel = "boot Debian's own kernel (package linux-image-amd64), or one built with "

// kernelFeatures are what the cloud needs of the kernel, each tried for real.
func kernelFeatures() []feature {
	return []feature{
		{"eBPF programs on interfaces", debianKernel + "CONFIG_BPF_SYSCALL, CONFIG_NET_CLS_BPF and CONFIG_NET_SCH_INGRESS", tryEBPF},
		{"eBPF type information (BTF)", debianKernel + "CONFIG_DEBUG_INFO_BTF", tryBTF},
		{"a BPF file system", debianKernel + "CONFIG_BPF_SYSCALL, and let root mount one", tryBPFFS},
		{"veth pairs", debianKernel + "CONFIG_VETH", tryLink(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "check0"}, PeerName: "check1"})},
		{"bridges", debianKernel + "CONFIG_BRIDGE", tryLink(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "check0"}})},
		{"VXLAN with external control", debianKernel + "CONFIG_VXLAN", tryLink(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "check0"}, FlowBased: true, Port: 4789})},
		{"the clsact queueing discipline", debianKernel + "CONFIG_NET_SCH_INGRESS", tryClsact},
		{"masquerading with nftables", debianKernel + "CONFIG_NF_TABLES, CONFIG_NFT_NAT, CONFIG_NFT_MASQ and CONFIG_NF_CONNTRACK", tryMasquerade},
		{"overlay file systems", debianKernel + "CONFIG_OVERLAY_FS, and keep the state on ext4, xfs or btrfs (not on another overlay)", tryOverlay},
		{"control groups", "mount cgroup v2 at /sys/fs/cgroup (or the v1 controllers under it), and enable the controllers named", tryControlGroups},
	}
}

// tryEBPF asks the kernel for the program, maps and helpers that the datapath stands on.
func tryEBPF(string) error {
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		return fmt.Errorf("programs of type sched_cls: %w", err)
	}
	for _, kind := range []ebpf.MapType{ebpf.Hash, ebpf.LRUHash, ebpf.LPMTrie, ebpf.PerCPUHash, ebpf.PerCPUArray} {
		if err := features.HaveMapType(kind); err != nil {
			return fmt.Errorf("maps of type %v: %w", kind, err)
		}
	}
	for _, helper := range []asm.BuiltinFunc{
		asm.FnRedirect, asm.FnRedirectPeer, asm.FnSkbSetTunnelKey, asm.FnSkbGetTunnelKey, asm.FnSkbStoreBytes, asm.FnCsumDiff, asm.FnL4CsumReplace,
	} {
		if err := features.HaveProgramHelper(ebpf.SchedCLS, helper); err != nil {
			return fmt.Errorf("helper %v: %w", helper, err)
		}
	}
	return nil
}

// tryBTF looks for the kernel's own types, which let one compiled program run on every kernel (CO-RE).
func tryBTF(string) error {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	return err
}

// tryBPFFS mounts a BPF file system where nobody else sees it.
func tryBPFFS(string) error {
	return inNamespace(unix.CLONE_NEWNS, func() error {
		dir, err := os.MkdirTemp("", "mni-check-")
		if err != nil {
			return err
		}
		defer os.Remove(dir)
		if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
			return err
		}
		return unix.Unmount(dir, unix.MNT_DETACH)
	})
}

// tryLink makes the interface in a network namespace of its own.
func tryLink(link netlink.Link) func(string) error {
	return func(string) error {
		return inNamespace(unix.CLONE_NEWNET, func() error { return netlink.LinkAdd(link) })
	}
}

// tryClsact attaches clsact to the loopback interface of a network namespace of its own.
func tryClsact(string) error {
	return inNamespace(unix.CLONE_NEWNET, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.QdiscAdd(&netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: lo.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
			QdiscType:  "clsact",
		})
	})
}

// tryMasquerade puts a masquerading rule into a network namespace of its own.
func tryMasquerade(string) error {
	return inNamespace(unix.CLONE_NEWNET, func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "check"})
		chain := conn.AddChain(&nftables.Chain{
			Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
		})
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Masq{}}})
		return conn.Flush()
	})
}

// tryOverlay mounts an overlay whose upper layer is where the cloud's state will be: the kind of file system matters.
func tryOverlay(stateDir string) error {
	parent, err := nearestFolder(stateDir)
	if err != nil {
		return err
	}
	return inNamespace(unix.CLONE_NEWNS, func() error {
		dir, err := os.MkdirTemp(parent, ".mni-check-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		for _, layer := range []string{"lower", "upper", "work", "merged"} {
			if err := os.Mkdir(filepath.Join(dir, layer), 0o700); err != nil {
				return err
			}
		}
		merged := filepath.Join(dir, "merged")
		options := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", dir, dir, dir)
		if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
			return fmt.Errorf("mount with the upper layer under %s: %w", parent, err)
		}
		writeErr := os.WriteFile(filepath.Join(merged, "file"), nil, 0o600)
		return errors.Join(writeErr, unix.Unmount(merged, unix.MNT_DETACH))
	})
}

// controllers are the control group controllers that the kubelet needs.
var controllers = []string{"cpu", "cpuset", "memory", "pids"}

func tryControlGroups(string) error {
	unified, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err == nil {
		return lackingControllers(strings.Fields(string(unified)))
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	return lackingControllers(legacyControllers(string(mounts), func(mountPoint string) bool {
		_, err := os.Stat(filepath.Join(mountPoint, "cgroup.procs"))
		return err == nil
	}))
}

// legacyControllers are the cgroup v1 controllers that are mounted, from a table of mounts (fstab(5)); visible tells whether
// a mount is not hidden below another.
func legacyControllers(mounts string, visible func(mountPoint string) bool) []string {
	var out []string
	for line := range strings.Lines(mounts) {
		if fields := strings.Fields(line); len(fields) >= 4 && fields[2] == "cgroup" && visible(fields[1]) {
			out = append(out, strings.Split(fields[3], ",")...)
		}
	}
	return out
}

// lackingControllers names the needed controllers that are not there.
func lackingControllers(have []string) error {
	var lacking []string
	for _, c := range controllers {
		if !slices.Contains(have, c) {
			lacking = append(lacking, c)
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("controllers not available: %s", strings.Join(lacking, ", "))
	}
	return nil
}

// inNamespace runs do on a thread in new namespaces of the kinds in flags. The thread, and with it what do made in the
// namespaces, ends afterwards.
func inNamespace(flags int, do func() error) error {
	result := make(chan error, 1)
	go spawn.OnThread(func() {
		result <- func() error {
			if err := unix.Unshare(flags | unix.CLONE_FS); err != nil {
				return fmt.Errorf("make a namespace: %w", err)
			}
			if flags&unix.CLONE_NEWNS != 0 {
				if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
					return fmt.Errorf("make mounts private: %w", err)
				}
			}
			return do()
		}()
	})
	return <-result
}
