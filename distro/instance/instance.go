package instance

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Default is the name of the instance that commands use when none is named.
const Default = "default"

// Variable is the environment variable that names the instance to use.
const Variable = "MNI_INSTANCE"

// FromEnvironment is the instance to use when the command line names none: Variable's, or Default.
func FromEnvironment() string {
	if name := os.Getenv(Variable); name != "" {
		return name
	}
	return Default
}

// The folders under which every instance has its own.
const (
	// StateRoot holds what survives a reboot.
	StateRoot = "/var/lib/mni"
	// RunRoot holds what does not: sockets, pinned namespaces, runtime state.
	RunRoot = "/run/mni"
	// PinRoot is on the machine's BPF file system.
	PinRoot = "/sys/fs/bpf/mni"
)

// nameRE bounds names so that links, namespaces, cgroups and socket paths made from them fit the kernel's limits.
var nameRE = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$`)

// ValidateName says what is wrong with an instance's name.
func ValidateName(name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("--instance %q: a name is 1 to 20 lower-case letters, digits and '-', starts with a letter and does not end with '-'", name)
	}
	return nil
}

// Instance is one embedded cloud on this machine.
type Instance struct {
	// Name is unique on the machine.
	Name string
	// Slot is 0 for Default, 1 to MaxSlot for the others.
	Slot int
}

// StateDir holds the instance's certificates, etcd's data, images, nodes' disks and logs.
func (i Instance) StateDir() string { return filepath.Join(StateRoot, i.Name) }

// RunDir is a file system of the instance's own, gone after `mni down`.
func (i Instance) RunDir() string { return filepath.Join(RunRoot, i.Name) }

// LogDir holds one log a part, and the rotated ones.
func (i Instance) LogDir() string { return filepath.Join(i.StateDir(), "logs") }

// PKIDir holds keys and certificates.
func (i Instance) PKIDir() string { return filepath.Join(i.StateDir(), "pki") }

// ConfigDir holds the rendered configuration files of the parts.
func (i Instance) ConfigDir() string { return filepath.Join(i.StateDir(), "config") }

// AdminKubeconfig is the machine owner's kubeconfig.
func (i Instance) AdminKubeconfig() string { return AdminKubeconfig(i.Name) }

// AdminKubeconfig is where the kubeconfig of the machine's owner is for the instance of that name.
func AdminKubeconfig(name string) string {
	return filepath.Join(StateRoot, name, "admin.kubeconfig")
}

// GatewayKubeconfig says where users find the cloud and whose certificate it has; it logs nobody in.
func (i Instance) GatewayKubeconfig() string {
	return filepath.Join(i.StateDir(), "gateway.kubeconfig")
}

// SupervisorSocket is where the instance's supervisor listens.
func (i Instance) SupervisorSocket() string { return filepath.Join(i.RunDir(), "supervisor.sock") }

// PinDir is where members of the instance's network pin BPF objects, each in a folder of its own.
func (i Instance) PinDir() string { return filepath.Join(PinRoot, i.Name) }

// Cgroup is the path, below the root of every hierarchy, that all processes of the instance are in.
func (i Instance) Cgroup() string { return "/mni/" + i.Name }

// Table is the name of the nftables table that the instance owns on the machine.
func (i Instance) Table() string { return "mni-" + i.Name }

// SwitchNetns is the network namespace in which the underlay bridge is.
func (i Instance) SwitchNetns() string { return "mni-" + i.Name + "-underlay" }

// EdgeNetns is the network namespace of the edge router.
func (i Instance) EdgeNetns() string { return "mni-" + i.Name + "-edge" }

// EdgeDir is where the edge router has its sockets and its configuration.
func (i Instance) EdgeDir() string { return filepath.Join(i.RunDir(), "edge") }

// LinkPrefix starts the name of every link of the instance on the machine.
func (i Instance) LinkPrefix() string { return fmt.Sprintf("mni%d", i.Slot) }

// UplinkName is the machine's link into the underlay.
func (i Instance) UplinkName() string { return i.LinkPrefix() + "-up" }

// Node is one node of the instance.
type Node struct {
	Instance Instance
	// Index counts from 1.
	Index int
}

// Nodes are the instance's first n nodes.
func (i Instance) Nodes(n int) []Node {
	nodes := make([]Node, n)
	for k := range nodes {
		nodes[k] = Node{Instance: i, Index: k + 1}
	}
	return nodes
}

// Name is the Kubernetes Node's name.
func (n Node) Name() string { return fmt.Sprintf("node-%d", n.Index) }

// Netns is the name of the node's network namespace under /run/netns.
func (n Node) Netns() string { return "mni-" + n.Instance.Name + "-" + n.Name() }

// StateDir holds the node's own disk: images, volumes, logs of Pods.
func (n Node) StateDir() string { return filepath.Join(n.Instance.StateDir(), "nodes", n.Name()) }

// RunDir is what the node sees as /run.
func (n Node) RunDir() string { return filepath.Join(n.Instance.RunDir(), "nodes", n.Name()) }

// MountNamespace is the file on which the node's mount namespace is pinned.
func (n Node) MountNamespace() string {
	return filepath.Join(n.Instance.RunDir(), "namespaces", n.Name()+".mnt")
}

// PinDir is where the node's mni-netd pins its BPF objects.
func (n Node) PinDir() string { return filepath.Join(n.Instance.PinDir(), n.Name()) }

// PodCgroup is the parent of the cgroups of the node's Pods.
func (n Node) PodCgroup() string { return n.Instance.Cgroup() + "/" + n.Name() }
