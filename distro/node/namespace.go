package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/spawn"
	"github.com/mnicloud/mnicloud/distro/underlay"
)

// Paths inside every node.
const (
	// BinDir has the cloud's programs.
	BinDir = "/run/mni/bin"
	// CNIBinDir has the network plugins that the container runtime runs, CNIConfDir the configuration that mni-netd writes.
	CNIBinDir  = "/run/mni/cni/bin"
	CNIConfDir = "/run/mni/cni/net.d"
	// ProxyBinDir has the only programs of the machine that kube-proxy finds. It would clean up after its iptables mode at each start,
	// calling a program dozens of times that the cloud does without.
	ProxyBinDir = "/run/mni/kube-proxy/bin"
)

// proxyPrograms are the machine's programs in ProxyBinDir.
var proxyPrograms = []string{"nft"}

// plugins are links in CNIBinDir to one program, which looks at the name it is called by.
var plugins = []string{"mni-cni", "loopback"}

// MountRunDir mounts a private file system at the instance's run folder: a pinned mount namespace must be on one, and
// everything in it is gone after `mni down` and after a reboot.
func MountRunDir(inst instance.Instance) error {
	dir := inst.RunDir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if mounted, err := isMountPoint(dir); err != nil || mounted {
		return err
	}
	if err := unix.Mount("mni-"+inst.Name, dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mount %s private: %w", dir, err)
	}
	return nil
}

// Ensure makes the node's mount namespace, unless it is pinned already. The node's network namespace must exist.
// binDir is the machine's folder of programs; resolver the content of the node's resolv.conf.
func Ensure(n instance.Node, binDir string, resolver []byte) error {
	if err := linkPrograms(n); err != nil {
		return fmt.Errorf("%s: %w", n.Name(), err)
	}
	pin := n.MountNamespace()
	if underlay.Pinned(pin) {
		return nil
	}
	if err := makeFiles(n, resolver); err != nil {
		return fmt.Errorf("%s: %w", n.Name(), err)
	}
	err := pinNew(n, binDir, pin)
	for _, cpu := range processors() {
		if !errors.Is(err, errTooEarly) {
			break
		}
		err = pinNew(n, binDir, pin, cpu)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name(), err)
	}
	return nil
}

// errTooEarly is the kernel's word that a mount namespace could hold itself: it takes the one to be pinned for older than the
// caller's. Linux from 6.18 on numbers namespaces by batches of each processor, so one made later on another processor may have
// a lower number; on the processor of the caller's namespace it has not.
var errTooEarly = errors.New("pin its mount namespace: the kernel takes it for older than this program's")

// pinNew builds the node's mount namespace, on the processor if one is given, and pins it.
func pinNew(n instance.Node, binDir, pin string, processor ...int) error {
	type result struct {
		tid int
		err error
	}
	made, pinned := make(chan result), make(chan struct{})
	go spawn.OnThread(func() {
		err := onProcessor(processor...)
		if err == nil {
			err = build(n, binDir)
		}
		made <- result{unix.Gettid(), err}
		<-pinned
	})
	defer close(pinned)
	got := <-made
	if got.err != nil {
		return fmt.Errorf("make its mount namespace: %w", got.err)
	}
	err := unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/mnt", got.tid), pin, "", unix.MS_BIND, "")
	switch {
	case errors.Is(err, unix.EINVAL):
		return errTooEarly
	case err != nil:
		return fmt.Errorf("pin its mount namespace: %w", err)
	}
	return nil
}

// linkPrograms fills ProxyBinDir, also of a node that an older build made.
func linkPrograms(n instance.Node) error {
	dir := outside(n, ProxyBinDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range proxyPrograms {
		program, err := exec.LookPath(name)
		if err != nil {
			return fmt.Errorf("kube-proxy needs it: %w", err)
		}
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// makeFiles makes the folders and files that the mounts stand on, while they are still the machine's.
func makeFiles(n instance.Node, resolver []byte) error {
	for _, dir := range []string{
		filepath.Dir(n.MountNamespace()),
		outside(n, BinDir), outside(n, CNIBinDir), outside(n, CNIConfDir), sysStaging(n),
		filepath.Join(n.StateDir(), "var/lib/kubelet"), filepath.Join(n.StateDir(), "var/log/pods"),
		filepath.Join(n.StateDir(), "var/tmp"), inner(n),
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, name := range plugins {
		link := filepath.Join(outside(n, CNIBinDir), name)
		if err := os.Symlink(filepath.Join(BinDir, "mni-cni"), link); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	runLink := filepath.Join(n.StateDir(), "var/run")
	if err := os.Symlink("/run", runLink); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for name, value := range tunables {
		file := filepath.Join(n.RunDir(), "tunables", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(n.RunDir(), "resolv.conf"), resolver, 0o644); err != nil {
		return err
	}
	return os.WriteFile(n.MountNamespace(), nil, 0o444)
}

// inner is where the node's state folder must appear below its own /var, to have the same path inside and outside.
func inner(n instance.Node) string { return filepath.Join(n.StateDir(), n.StateDir()) }

// outside is the machine's path of a path in the node's /run.
func outside(n instance.Node, path string) string {
	return filepath.Join(n.RunDir(), strings.TrimPrefix(path, "/run"))
}

func sysStaging(n instance.Node) string { return filepath.Join(n.RunDir(), "mni/sys") }

// tunables are kernel settings of the whole machine that the kubelet insists on writing. It finds these files in their
// place, reads what it wants to read, and the machine's settings stay its owner's.
var tunables = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// build leaves the calling thread in a new mount namespace that is the node's.
func build(n instance.Node, binDir string) error {
	net, err := unix.Open(underlay.NetnsPath(n.Netns()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open its network namespace: %w", err)
	}
	defer func() { _ = unix.Close(net) }()
	if err := unix.Setns(net, unix.CLONE_NEWNET); err != nil { // a new sysfs shows the links of the mounter's namespace
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	m := mounter{}
	m.propagation("/", unix.MS_SLAVE) // sees the machine's unmounts, so that it never keeps a disk busy
	m.detachForeign()
	m.sys(sysStaging(n))
	m.bind(binDir, outside(n, BinDir))
	m.bind(n.StateDir(), inner(n))
	for name := range tunables {
		if _, err := os.Stat("/proc/sys/" + name); err == nil {
			m.bind(filepath.Join(n.RunDir(), "tunables", name), "/proc/sys/"+name)
		}
	}
	resolvConf := filepath.Join(n.RunDir(), "resolv.conf")
	if target, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil && !below(target, "/run") && !below(target, "/var") {
		m.bind(resolvConf, target)
	} else if err == nil && below(target, "/run") {
		m.copy(resolvConf, filepath.Join(n.RunDir(), target[len("/run"):]))
	}
	m.bind(filepath.Join(n.StateDir(), "var"), "/var")
	m.bind(n.RunDir(), "/run")
	m.propagation("/", unix.MS_SHARED)
	return m.err
}

// Run runs a function on a thread inside the node.
func Run(n instance.Node, do func() error) error {
	return spawn.Run(Place(n), do)
}

// Place is where the node's processes run.
func Place(n instance.Node) spawn.Place {
	return spawn.Place{Netns: underlay.NetnsPath(n.Netns()), MountNamespace: n.MountNamespace()}
}
