package parts

import (
	"encoding/base64"
	"fmt"
	"os"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/distro/pki"
)

// Kubeconfig is the path of a kubeconfig on the machine by its name: installer or a component's.
func (o Options) Kubeconfig(name string) string { return o.config(name + ".kubeconfig") }

// AuthorityFile is the certificate of the authority that signed the cloud's servers'.
func (o Options) AuthorityFile() string { return o.store().CertFile(pki.Cluster) }

// kubeconfig refers to the certificate's files, so that a renewed one is picked up.
func (o Options) kubeconfig(name string, cert pki.Request) File {
	return File{
		Path: o.Kubeconfig(name), Secret: true,
		Content: kubeconfigText(o.APIServerURL(), o.store().CertFile(pki.Cluster), cert),
	}
}

func (o Options) nodeKubeconfig(n instance.Node, name string, cert pki.Request) File {
	return File{Path: nodeConfig(n, name+".kubeconfig"), Secret: true, Content: kubeconfigText(o.APIServerURL(), nodeCA(n), cert)}
}

func kubeconfigText(server, ca string, cert pki.Request) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: mni
contexts:
- name: mni
  context: {cluster: mni, user: %[3]s}
clusters:
- name: mni
  cluster:
    server: %[1]s
    certificate-authority: %[2]s
users:
- name: %[3]s
  user:
    client-certificate: %[4]s
    client-key: %[5]s
`, server, ca, cert.Name, cert.CertFile(), cert.KeyFile())
}

// FilesFromCertificates are the files that hold certificates themselves, which must exist: the nodes' copies of the
// authority, the owner's kubeconfig, which can be copied elsewhere, and where users find the cloud, which is no secret.
func (o Options) FilesFromCertificates() ([]File, error) {
	cert := o.cert(o.Instance.PKIDir(), "admin")
	var pem []string
	for _, path := range []string{o.store().CertFile(pki.Cluster), cert.CertFile(), cert.KeyFile()} {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		pem = append(pem, string(content))
	}
	var files []File
	for _, n := range o.Instance.Nodes(o.Nodes) {
		files = append(files, File{Path: nodeCA(n), Content: pem[0]})
	}
	name := "mni-" + o.Instance.Name
	encode := func(i int) string { return base64.StdEncoding.EncodeToString([]byte(pem[i])) }
	files = append(files, File{Path: o.Instance.GatewayKubeconfig(), Content: fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: %[1]s
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: ""}
clusters:
- name: %[1]s
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
`, name, o.GatewayURL(), encode(0))})
	return append(files, File{Path: o.Instance.AdminKubeconfig(), Secret: true, Content: fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: %[1]s
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: %[1]s-admin}
clusters:
- name: %[1]s
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
users:
- name: %[1]s-admin
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
`, name, o.APIServerURL(), encode(0), encode(1), encode(2))}), nil
}

func containerdConfig(o Options, n instance.Node) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = %[1]q

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[2]q
  restrict_oom_score_adj = %[3]t
  max_concurrent_downloads = 8

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = %[4]q
  conf_dir = %[6]q
  max_conf_num = 1

[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = %[5]q
`, containerdSocket, PauseImage, o.RestrictOOMScore, node.CNIBinDir, nodeConfig(n, "certs.d"), node.CNIConfDir)
}

func kubeletConfig(o Options, n instance.Node, serving pki.Request) string {
	resolver := "/etc/resolv.conf"
	if !o.Resolver {
		resolver = ""
	}
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
healthzBindAddress: %[1]s
readOnlyPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[2]s}
authorization: {mode: Webhook}
tlsCertFile: %[3]s
tlsPrivateKeyFile: %[4]s
tlsMinVersion: VersionTLS12
containerRuntimeEndpoint: unix://%[5]s
cgroupDriver: cgroupfs
cgroupRoot: %[6]s
failCgroupV1: false
failSwapOn: false
clusterDomain: cluster.local
clusterDNS: [%[7]s]
resolvConf: %[8]q
seccompDefault: true
serializeImagePulls: false
nodeStatusUpdateFrequency: 2s
nodeStatusReportFrequency: 5m
nodeLeaseDurationSeconds: 16
makeIPTablesUtilChains: false
enableDebuggingHandlers: true
volumePluginDir: /var/lib/kubelet/volumeplugins
maxPods: 250
# The disk is shared with the machine's owner: what counts is what is left, not how full it is.
evictionHard: {memory.available: 100Mi, nodefs.available: 1Gi, imagefs.available: 1Gi, nodefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
`, n.Address(), nodeCA(n), serving.CertFile(), serving.KeyFile(), containerdSocket, n.PodCgroup(),
		o.Instance.Addresses().DNS, resolver)
}

// kubeProxyConfig serves the node's own traffic and NodePorts; Pods' Services are the datapath's.
func kubeProxyConfig(o Options, n instance.Node, kubeconfig string) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: %[1]s
healthzBindAddress: %[2]s:10256
metricsBindAddress: %[2]s:10249
clientConnection: {kubeconfig: %[3]s, qps: 50, burst: 100}
clusterCIDR: %[4]s
detectLocalMode: ClusterCIDR
nodePortAddresses: [primary]
# The machine's limits are its owner's, and cannot be written from a network namespace.
conntrack: {maxPerCore: 0, min: 0, tcpBeLiberal: true}
`, n.Name(), n.Address(), kubeconfig, o.Instance.Addresses().Infrastructure)
}

// AuditPolicy keeps who did what to which object. Bodies are kept only where they hold no secret: a workload's
// environment may.
const AuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources:
  - {group: "", resources: [secrets, serviceaccounts/token]}
  - {group: authentication.k8s.io, resources: [tokenreviews]}
  - {group: auth.mnicloud.jp}
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi*", "/api", "/api/*", "/apis", "/apis/*"]
- level: None
  resources:
  - {group: "", resources: [events]}
  - {group: events.k8s.io, resources: [events]}
  - {group: coordination.k8s.io, resources: [leases]}
  - {group: authorization.k8s.io, resources: [subjectaccessreviews]}
- level: None
  verbs: [get, list, watch]
  userGroups: ["system:nodes", "system:mni:netd", "system:mni:bgpd", "system:mni:dns", "system:serviceaccounts:kube-system"]
- level: None
  verbs: [get, list, watch]
  users: ["system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy", "system:apiserver", "system:mni:cloud"]
- level: Request
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - {group: rbac.authorization.k8s.io}
  - {group: vpc.mnicloud.jp}
  - {group: "", resources: [namespaces]}
- level: Metadata
`
