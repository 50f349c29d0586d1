package parts

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/distro/pki"
	"github.com/mnicloud/mnicloud/distro/registry"
	"github.com/mnicloud/mnicloud/distro/supervisor"
	"github.com/mnicloud/mnicloud/distro/underlay"
)

// Names of a node's parts, after its name and "/".
const (
	Containerd = "containerd"
	Kubelet    = "kubelet"
	KubeProxy  = "kube-proxy"
	Netd       = "mni-netd"
	Bgpd       = "mni-bgpd"
	DNS        = "mni-dns"
)

// Paths inside a node, the same in every node.
const (
	containerdSocket = "/run/containerd/containerd.sock"
	netdSocket       = "/run/mni/netd.sock"
	bgpdRunDir       = "/run/mni/bgpd"
	cniConf          = node.CNIConfDir + "/10-mni.conflist"
)

// How many flows the tables of a node have room for, and those of the machine, which has no workloads. The nodes share one machine's
// memory, so they have half of what a node of its own has by default, but for those of NATGateways.
const (
	nodeFlows    = 65536
	machineFlows = 8192
)

func (o Options) node(n instance.Node) []spec {
	return []spec{o.containerd(n), o.netd(n), o.kubelet(n), o.kubeProxy(n), o.bgpd(n), o.dns(n)}
}

// outside is the machine's path of a path in the node's /run.
func outside(n instance.Node, path string) string {
	rest, err := filepath.Rel("/run", path)
	if err != nil {
		panic(err) // a constant of this package
	}
	return filepath.Join(n.RunDir(), rest)
}

func nodeConfig(n instance.Node, name string) string {
	return filepath.Join(n.StateDir(), "config", name)
}

func onNode(n instance.Node, port int) string {
	return net.JoinHostPort(n.Address().String(), strconv.Itoa(port))
}

func (o Options) containerd(n instance.Node) spec {
	config := File{Path: nodeConfig(n, "containerd.toml"), Content: containerdConfig(o, n)}
	endpoint := registry.Endpoint{Address: o.on(registry.Port), CAFile: nodeCA(n)}
	hosts := File{
		Path:    registry.HostsFile(nodeConfig(n, "certs.d")),
		Content: string(registry.HostsTOML(endpoint, o.RegistryPassword)), Secret: true,
	}
	place := node.Place(n)
	place.Cgroup = SystemCgroup(o.Instance)
	return spec{binary: o.Containerd, files: []File{config, hosts}, Part: supervisor.Part{
		Name: n.Name() + "/" + Containerd, Command: []string{o.Containerd, "--config=" + config.Path}, Place: place,
		Ready: &supervisor.Probe{Socket: outside(n, containerdSocket)},
		Env:   []string{"GOMEMLIMIT=256MiB"},
	}}
}

func (o Options) kubelet(n instance.Node) spec {
	client, serving := o.cert(nodePKI(n), "kubelet"), o.cert(nodePKI(n), "kubelet-serving")
	kubeconfig := o.nodeKubeconfig(n, "kubelet", client)
	config := File{Path: nodeConfig(n, "kubelet.yaml"), Content: kubeletConfig(o, n, serving)}
	s := o.nodePart(n, Kubelet, kube, "kubelet", "--config="+config.Path, "--kubeconfig="+kubeconfig.Path,
		"--hostname-override="+n.Name(), "--node-ip="+n.Address().String())
	s.files, s.certs = []File{kubeconfig, config}, []pki.Request{client, serving}
	s.Env = []string{"GOMEMLIMIT=256MiB"}
	s.Place.Nice = secondServed
	// A kubelet that starts with the network in place is ready at once; it looks again only every few seconds.
	s.After = []string{APIServer, Images, n.Name() + "/" + Containerd, n.Name() + "/" + Netd}
	s.Ready = &supervisor.Probe{URL: "http://" + onNode(n, 10248) + "/healthz"}
	s.Sweep = n.PodCgroup()
	return s
}

func (o Options) kubeProxy(n instance.Node) spec {
	client := o.cert(nodePKI(n), "kube-proxy")
	kubeconfig := o.nodeKubeconfig(n, "kube-proxy", client)
	config := File{Path: nodeConfig(n, "kube-proxy.yaml"), Content: kubeProxyConfig(o, n, kubeconfig.Path)}
	s := o.nodePart(n, KubeProxy, kube, "kube-proxy", "--config="+config.Path)
	s.files, s.certs = []File{kubeconfig, config}, []pki.Request{client}
	s.Env = []string{"GOMEMLIMIT=128MiB", "PATH=" + node.ProxyBinDir}
	s.After = []string{n.Name() + "/" + Kubelet} // which makes the Node
	s.Ready = &supervisor.Probe{URL: "http://" + onNode(n, 10256) + "/livez"}
	return s
}

func (o Options) netd(n instance.Node) spec {
	client := o.cert(nodePKI(n), "mni-netd")
	kubeconfig := o.nodeKubeconfig(n, "mni-netd", client)
	a := o.Instance.Addresses()
	s := o.nodePart(n, Netd, "mni-netd", "--kubeconfig="+kubeconfig.Path, "--node-name="+n.Name(),
		"--node-address="+n.Address().String(), "--uplink="+underlay.NodeUplink, fmt.Sprintf("--vxlan-port=%d", a.VXLANPort),
		"--infrastructure-cidr="+a.Infrastructure.String(), "--service-cidr="+a.Services.String(),
		"--reserved-cidr="+a.Underlay.String(), "--pin-path="+n.PinDir(), "--extra-hosts="+a.Machine.String(), "--metrics-address="+onNode(n, 9440),
		"--socket="+netdSocket, "--queue-dir=/var/lib/mni-netd/queue", "--cni-conf="+cniConf,
		fmt.Sprintf("--flows=%d", nodeFlows))
	s.files, s.certs = []File{kubeconfig}, []pki.Request{client}
	s.Env = []string{"GOMEMLIMIT=128MiB"}
	// It loads its programs while the API server starts, and waits itself for what it watches.
	s.After = []string{Etcd}
	s.Ready = &supervisor.Probe{URL: "http://" + onNode(n, 9440) + "/readyz"}
	return s
}

// dns answers what workloads in VPCs ask.
func (o Options) dns(n instance.Node) spec {
	client := o.cert(nodePKI(n), "mni-dns")
	kubeconfig := o.nodeKubeconfig(n, "mni-dns", client)
	resolvConf := ""
	if o.Resolver {
		resolvConf = "/etc/resolv.conf"
	}
	s := o.nodePart(n, DNS, "mni-dns", "--kubeconfig="+kubeconfig.Path, "--file=/var/lib/mni-dns/directory.json",
		"--resolv-conf="+resolvConf, "--metrics-address="+onNode(n, 9441))
	s.files, s.certs = []File{kubeconfig}, []pki.Request{client}
	s.Env = []string{"GOMEMLIMIT=96MiB"}
	s.After = []string{Manifests, n.Name() + "/" + Netd, n.Name() + "/" + Kubelet} // netd gives the host the resolver's address; nobody asks before the kubelet
	s.Ready = &supervisor.Probe{URL: "http://" + onNode(n, 9441) + "/readyz"}
	return s
}

// machineNetd makes the machine a member of the network, without Pods of its own.
func (o Options) machineNetd() spec {
	client := o.cert(o.Instance.PKIDir(), "mni-netd")
	kubeconfig := o.kubeconfig("mni-netd", client)
	a := o.Instance.Addresses()
	s := o.machinePart(MachineNetd, "mni-netd", "--host-only", "--kubeconfig="+kubeconfig.Path, "--node-name="+MachineMember,
		"--node-address="+a.Machine.String(), "--uplink="+o.Instance.UplinkName(), fmt.Sprintf("--vxlan-port=%d", a.VXLANPort),
		"--infrastructure-cidr="+a.Infrastructure.String(), "--service-cidr="+a.Services.String(),
		"--reserved-cidr="+a.Underlay.String(), "--pin-path="+filepath.Join(o.Instance.PinDir(), MachineMember), "--link-prefix="+o.Instance.LinkPrefix()+"-",
		"--extra-hosts="+a.Machine.String(), "--metrics-address="+o.on(9440),
		fmt.Sprintf("--flows=%d", machineFlows))
	s.Ready = &supervisor.Probe{URL: "http://" + o.on(9440) + "/readyz"}
	s.Env = []string{"GOMEMLIMIT=128MiB"}
	s.files, s.certs = []File{kubeconfig}, []pki.Request{client}
	s.After = []string{Etcd}
	return s
}
