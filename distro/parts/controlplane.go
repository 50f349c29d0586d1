package parts

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/mnicloud/mnicloud/distro/pki"
	"github.com/mnicloud/mnicloud/distro/registry"
	"github.com/mnicloud/mnicloud/distro/supervisor"
)

// Names of the parts on the machine.
const (
	Etcd              = "etcd"
	APIServer         = "apiserver"
	ControllerManager = "controller-manager"
	Scheduler         = "scheduler"
	Registry          = "registry"
	Images            = "images"
	NodeImages        = "node-images"
	Manifests         = "manifests"
	Cloud             = "mni-cloud"
	Gateway           = "mni-gateway"
	MachineNetd       = "machine/mni-netd"
)

// MachinePorts are the TCP ports that parts listen on at the machine's underlay address.
var MachinePorts = []uint16{2379, 2380, 2381, 6443, 10257, 10259, registry.Port, 9440, 9441, 9442, webhookPort, gatewayPort, gatewayHealthPort}

// webhookPort is where mni-cloud serves the API server's webhooks.
const webhookPort = 9443

// Where mni-gateway serves the cloud's API, and tells how it is.
const (
	gatewayPort       = 7443
	gatewayHealthPort = 9444
)

const kube = "mni-kube"

// Priorities among the parts where the processor is short: first what every other part waits for, and who speaks BFD, then what a Pod's start waits for.
// What starts Pods itself has none, as they would inherit it.
const (
	firstServed  = -10
	secondServed = -5
)

func (o Options) controlPlane() []spec {
	return []spec{
		o.etcd(), o.apiServer(), o.controllerManager(), o.scheduler(), o.registry(), o.images(), o.nodeImages(), o.manifests(), o.cloud(),
		o.gateway(), o.machineNetd(),
	}
}

// on is HOST:PORT on the machine's underlay address.
func (o Options) on(port int) string {
	return net.JoinHostPort(o.Instance.Addresses().Machine.String(), strconv.Itoa(port))
}

// APIServerURL is where the API server listens.
func (o Options) APIServerURL() string { return "https://" + o.on(6443) }

// GatewayURL is where users find the cloud's API.
func (o Options) GatewayURL() string { return "https://" + o.on(gatewayPort) }

func (o Options) etcd() spec {
	cert := o.cert(o.Instance.PKIDir(), "etcd")
	client := o.cert(o.Instance.PKIDir(), "apiserver-etcd-client")
	ca := o.store().CertFile(pki.Etcd)
	// A port that serves gRPC alone serves it without net/http in between, which is slower.
	clients, peers, health := "https://"+o.on(2379), "https://"+o.on(2380), "https://"+o.on(2381)
	s := o.machinePart(Etcd, kube, "etcd",
		"--name=machine", "--data-dir="+filepath.Join(o.Instance.StateDir(), "etcd"),
		"--listen-client-urls="+clients, "--advertise-client-urls="+clients, "--listen-client-http-urls="+health,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=machine="+peers,
		"--client-cert-auth=true", "--trusted-ca-file="+ca, "--cert-file="+cert.CertFile(), "--key-file="+cert.KeyFile(),
		"--peer-client-cert-auth=true", "--peer-trusted-ca-file="+ca, "--peer-cert-file="+cert.CertFile(), "--peer-key-file="+cert.KeyFile(),
		"--auto-compaction-mode=periodic", "--auto-compaction-retention=1h", "--quota-backend-bytes=4294967296",
		"--snapshot-count=10000", "--log-level=warn",
	)
	s.certs = []pki.Request{cert}
	s.Env = []string{"GOMEMLIMIT=512MiB"}
	s.Place.Nice = firstServed
	s.Ready = &supervisor.Probe{URL: health + "/health", CA: ca, Cert: client.CertFile(), Key: client.KeyFile()}
	return s
}

func (o Options) apiServer() spec {
	a, store, dir := o.Instance.Addresses(), o.store(), o.Instance.PKIDir()
	serving, toEtcd := o.cert(dir, "apiserver"), o.cert(dir, "apiserver-etcd-client")
	toKubelet, frontProxy := o.cert(dir, "apiserver-kubelet-client"), o.cert(dir, "front-proxy-client")
	policy := File{Path: o.config("audit-policy.yaml"), Content: AuditPolicy}
	s := o.machinePart(APIServer, kube, "kube-apiserver",
		"--bind-address="+a.Machine.String(), "--secure-port=6443", "--advertise-address="+a.Machine.String(),
		"--service-cluster-ip-range="+a.Services.String(),
		"--tls-cert-file="+serving.CertFile(), "--tls-private-key-file="+serving.KeyFile(), "--tls-min-version=VersionTLS12",
		"--client-ca-file="+store.CertFile(pki.Cluster), "--anonymous-auth=false", "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth=false",
		"--etcd-servers=https://"+o.on(2379), "--etcd-cafile="+store.CertFile(pki.Etcd),
		"--etcd-certfile="+toEtcd.CertFile(), "--etcd-keyfile="+toEtcd.KeyFile(),
		"--encryption-provider-config="+store.EncryptionConfigFile(),
		"--kubelet-client-certificate="+toKubelet.CertFile(), "--kubelet-client-key="+toKubelet.KeyFile(),
		"--kubelet-certificate-authority="+store.CertFile(pki.Cluster), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+store.ServiceAccountPublicFile(),
		"--service-account-signing-key-file="+store.ServiceAccountKeyFile(),
		"--proxy-client-cert-file="+frontProxy.CertFile(), "--proxy-client-key-file="+frontProxy.KeyFile(),
		"--requestheader-client-ca-file="+store.CertFile(pki.FrontProxy), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--audit-policy-file="+policy.Path, "--audit-log-path="+filepath.Join(o.Instance.LogDir(), "audit.log"),
		"--audit-log-maxsize=50", "--audit-log-maxbackup=4", "--audit-log-maxage=30",
		"--profiling=false", "--shutdown-delay-duration=0s",
	)
	s.files, s.certs = []File{policy}, []pki.Request{serving, toEtcd, toKubelet, frontProxy}
	s.Env = []string{"GOMEMLIMIT=1GiB", "GOGC=200"}
	s.After = []string{Etcd}
	s.Place.Nice = firstServed
	s.Ready = o.healthy(o.APIServerURL() + "/readyz")
	s.StopTimeout = 15 * time.Second
	return s
}

// healthy is a probe of a component that lets any authenticated user ask for its health.
func (o Options) healthy(url string) *supervisor.Probe {
	cert := o.cert(o.Instance.PKIDir(), "supervisor")
	return &supervisor.Probe{URL: url, CA: o.store().CertFile(pki.Cluster), Cert: cert.CertFile(), Key: cert.KeyFile()}
}

// kubeClient is a part on the machine that is a client of the API server.
func (o Options) kubeClient(s spec, kubeconfig File, cert pki.Request) spec {
	s.files = append(s.files, kubeconfig)
	s.certs = append(s.certs, cert)
	s.After = append(s.After, APIServer)
	return s
}

func (o Options) controllerManager() spec {
	store, dir := o.store(), o.Instance.PKIDir()
	cert, serving := o.cert(dir, "controller-manager"), o.cert(dir, "controller-manager-serving")
	config := o.kubeconfig("controller-manager", cert)
	s := o.machinePart(ControllerManager, kube, "kube-controller-manager",
		"--bind-address="+o.Instance.Addresses().Machine.String(), "--leader-elect=false",
		"--tls-cert-file="+serving.CertFile(), "--tls-private-key-file="+serving.KeyFile(),
		"--kubeconfig="+config.Path, "--authentication-kubeconfig="+config.Path, "--authorization-kubeconfig="+config.Path,
		"--client-ca-file="+store.CertFile(pki.Cluster), "--requestheader-client-ca-file="+store.CertFile(pki.FrontProxy),
		"--requestheader-allowed-names=front-proxy-client",
		"--root-ca-file="+store.CertFile(pki.Cluster), "--service-account-private-key-file="+store.ServiceAccountKeyFile(),
		// A lost node's workloads run elsewhere within a minute: see docs/design/nodes.md.
		"--node-monitor-period=2s", "--node-monitor-grace-period=20s",
		// It makes a service account and a token for each of its controllers before any of them starts. The API server has priority
		// and fairness; a limit here only makes that slow.
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--use-service-account-credentials=true", "--allocate-node-cidrs=false", "--profiling=false",
		"--controllers=*,-node-ipam-controller,-node-route-controller,-certificatesigningrequest-signing-controller,"+
			"-certificatesigningrequest-approving-controller,-certificatesigningrequest-cleaner-controller",
	)
	s.Env = []string{"GOMEMLIMIT=512MiB"}
	s.Place.Nice = secondServed
	s.Ready = o.healthy("https://" + o.on(10257) + "/healthz")
	s.certs = []pki.Request{serving}
	return o.kubeClient(s, config, cert)
}

func (o Options) scheduler() spec {
	dir := o.Instance.PKIDir()
	cert, serving := o.cert(dir, "scheduler"), o.cert(dir, "scheduler-serving")
	config := o.kubeconfig("scheduler", cert)
	s := o.machinePart(Scheduler, kube, "kube-scheduler",
		"--bind-address="+o.Instance.Addresses().Machine.String(), "--leader-elect=false",
		"--tls-cert-file="+serving.CertFile(), "--tls-private-key-file="+serving.KeyFile(),
		"--kubeconfig="+config.Path, "--authentication-kubeconfig="+config.Path, "--authorization-kubeconfig="+config.Path,
		"--client-ca-file="+o.store().CertFile(pki.Cluster), "--profiling=false",
	)
	s.Env = []string{"GOMEMLIMIT=256MiB"}
	s.Place.Nice = secondServed
	s.Ready = o.healthy("https://" + o.on(10259) + "/healthz")
	s.certs = []pki.Request{serving}
	return o.kubeClient(s, config, cert)
}

func (o Options) registry() spec {
	cert := o.cert(o.Instance.PKIDir(), "registry")
	state := registry.StateOf(o.Instance)
	s := o.machinePart(Registry, "mni", "registry", "serve", "--address="+o.on(registry.Port), "--data="+state.Dir,
		"--cert="+cert.CertFile(), "--key="+cert.KeyFile())
	s.Env = []string{"GOMEMLIMIT=128MiB"}
	s.Ready = &supervisor.Probe{URL: "https://" + o.on(registry.Port) + registry.HealthPath, CA: o.store().CertFile(pki.Cluster)}
	return s
}

// images is the job that fills the registry.
func (o Options) images() spec {
	s := o.machinePart(Images, "mni", "instance", "push-images", "--instance="+o.Instance.Name, "--layout="+o.ImageLayout)
	s.Once, s.After = true, []string{Registry}
	return s
}

// nodeImages is the job that has the nodes pull what their first Pods need, while the API server is still starting.
func (o Options) nodeImages() spec {
	s := o.machinePart(NodeImages, "mni", "instance", "pull-images", PauseImage, o.DNSImage)
	s.Once, s.After = true, []string{Images}
	for _, n := range o.Instance.Nodes(o.Nodes) {
		s.Command = append(s.Command, "--runtime="+outside(n, containerdSocket))
		s.After = append(s.After, n.Name()+"/"+Containerd)
	}
	return s
}

// manifests is the job that installs definitions, rights and the cluster's DNS into the API server.
func (o Options) manifests() spec {
	s := o.machinePart(Manifests, "mni", "instance", "install-manifests", "--instance="+o.Instance.Name,
		fmt.Sprintf("--nodes=%d", o.Nodes), "--dns-image="+o.DNSImage,
		"--pool="+o.Outside.Pool.String(), "--peer="+o.Outside.Peer.String())
	config := o.kubeconfig("installer", o.cert(o.Instance.PKIDir(), "installer"))
	// It renders them while the API server starts, and waits itself for that.
	s.Once, s.After, s.files = true, []string{Etcd}, []File{config}
	return s
}

func (o Options) cloud() spec {
	a := o.Instance.Addresses()
	cert, serving := o.cert(o.Instance.PKIDir(), "mni-cloud"), o.cert(o.Instance.PKIDir(), "mni-cloud-serving")
	config := o.kubeconfig("mni-cloud", cert)
	s := o.machinePart(Cloud, "mni-cloud", "--kubeconfig="+config.Path, "--infrastructure-cidr="+a.Infrastructure.String(),
		"--reserved-cidr="+a.Services.String(), "--reserved-cidr="+a.Underlay.String(),
		"--health-address="+o.on(9441), "--metrics-address="+o.on(9442),
		"--webhook-address="+o.on(webhookPort), "--webhook-cert="+serving.CertFile(), "--webhook-key="+serving.KeyFile())
	s.certs = []pki.Request{serving}
	s.Ready = &supervisor.Probe{URL: "http://" + o.on(9441) + "/readyz"}
	s.Env = []string{"GOMEMLIMIT=256MiB"}
	s.After = []string{Manifests}
	return o.kubeClient(s, config, cert)
}

// gateway is what users speak to. Nothing of the cloud waits for it, so it starts after what the first Pods need.
func (o Options) gateway() spec {
	cert, serving := o.cert(o.Instance.PKIDir(), "mni-gateway"), o.cert(o.Instance.PKIDir(), "mni-gateway-serving")
	config := o.kubeconfig("mni-gateway", cert)
	s := o.machinePart(Gateway, "mni-gateway", "--kubeconfig="+config.Path, "--address="+o.on(gatewayPort),
		"--cert="+serving.CertFile(), "--key="+serving.KeyFile(), "--health-address="+o.on(gatewayHealthPort))
	if f := o.Face; f.Address.IsValid() {
		s.Command = append(s.Command, "--public-address="+f.Address.String(), "--public-cert="+f.Cert, "--public-key="+f.Key)
	}
	s.certs = []pki.Request{serving}
	s.Ready = &supervisor.Probe{URL: "http://" + o.on(gatewayHealthPort) + "/readyz"}
	s.Env = []string{"GOMEMLIMIT=512MiB"} // 10,000 watchers take 280
	s.After = []string{Cloud}
	return o.kubeClient(s, config, cert)
}
