package parts

import (
	"net/netip"
	"path/filepath"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/pki"
	"github.com/mnicloud/mnicloud/distro/registry"
)

// Users and groups that certificates speak for, and that the RBAC manifests bind.
const (
	// UserCloud is mni-cloud's.
	UserCloud = "system:mni:cloud"
	// UserGateway is mni-gateway's.
	UserGateway = "system:mni:gateway"
	// UserNetdPrefix and a member's name make the user of an mni-netd; all are in GroupNetd.
	UserNetdPrefix = "system:mni:netd:"
	GroupNetd      = "system:mni:netd"
	// UserBgpdPrefix and a node's name make the user of an mni-bgpd; all are in GroupBgpd.
	UserBgpdPrefix = "system:mni:bgpd:"
	GroupBgpd      = "system:mni:bgpd"
	// UserDNSPrefix and a node's name make the user of an mni-dns; all are in GroupDNS.
	UserDNSPrefix = "system:mni:dns:"
	GroupDNS      = "system:mni:dns"
	// UserSupervisor asks components for their health.
	UserSupervisor = "system:mni:supervisor"
	// UserKubeletClient is the API server, towards kubelets.
	UserKubeletClient = "kube-apiserver-kubelet-client"
	// GroupAdministrators is bound to cluster-admin.
	GroupAdministrators = "mni:administrators"
	// MachineMember is the machine's name as a member of the network.
	MachineMember = "machine"
)

// certificates lists every certificate of the instance.
func certificates(o Options) []pki.Request {
	a := o.Instance.Addresses()
	machine := []netip.Addr{a.Machine}
	gateway := machine
	if o.Face.Address.IsValid() && o.Face.Cert == "" {
		gateway = append(gateway[:1:1], o.Face.Address.Addr())
	}
	dir := o.Instance.PKIDir()
	all := []pki.Request{
		{Name: "etcd", Authority: pki.Etcd, User: "etcd", Server: true, Client: true, Addresses: machine},
		{Name: "apiserver-etcd-client", Authority: pki.Etcd, User: "kube-apiserver-etcd-client", Client: true},
		{
			Name: "apiserver", Authority: pki.Cluster, User: "kube-apiserver", Server: true,
			Names:     []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
			Addresses: []netip.Addr{a.Machine, a.KubernetesService()},
		},
		{Name: "apiserver-kubelet-client", Authority: pki.Cluster, User: UserKubeletClient, Client: true},
		{Name: "front-proxy-client", Authority: pki.FrontProxy, User: "front-proxy-client", Client: true},
		{Name: "controller-manager", Authority: pki.Cluster, User: "system:kube-controller-manager", Client: true},
		{Name: "controller-manager-serving", Authority: pki.Cluster, User: "kube-controller-manager", Server: true, Addresses: machine},
		{Name: "scheduler", Authority: pki.Cluster, User: "system:kube-scheduler", Client: true},
		{Name: "scheduler-serving", Authority: pki.Cluster, User: "kube-scheduler", Server: true, Addresses: machine},
		{Name: "registry", Authority: pki.Cluster, User: registry.Name, Server: true, Names: []string{registry.Name}, Addresses: machine},
		{Name: "mni-cloud", Authority: pki.Cluster, User: UserCloud, Client: true},
		{Name: "mni-cloud-serving", Authority: pki.Cluster, User: "mni-cloud", Server: true, Addresses: machine},
		{Name: "mni-gateway", Authority: pki.Cluster, User: UserGateway, Client: true},
		{Name: "mni-gateway-serving", Authority: pki.Cluster, User: "mni-gateway", Server: true, Addresses: gateway},
		{Name: "mni-netd", Authority: pki.Cluster, User: UserNetdPrefix + MachineMember, Groups: []string{GroupNetd}, Client: true},
		{Name: "supervisor", Authority: pki.Cluster, User: UserSupervisor, Client: true},
		{Name: "installer", Authority: pki.Cluster, User: "mni-installer", Groups: []string{"system:masters"}, Client: true},
		{Name: "admin", Authority: pki.Cluster, User: "admin", Groups: []string{GroupAdministrators}, Client: true},
	}
	for i := range all {
		all[i].Dir = dir
	}
	for _, n := range o.Instance.Nodes(o.Nodes) {
		all = append(all, nodeCertificates(n)...)
	}
	return all
}

func nodeCertificates(n instance.Node) []pki.Request {
	all := []pki.Request{
		{Name: "kubelet", Authority: pki.Cluster, User: "system:node:" + n.Name(), Groups: []string{"system:nodes"}, Client: true},
		{
			Name: "kubelet-serving", Authority: pki.Cluster, User: "system:node:" + n.Name(), Groups: []string{"system:nodes"}, Server: true,
			Names: []string{n.Name()}, Addresses: []netip.Addr{n.Address()},
		},
		{Name: "kube-proxy", Authority: pki.Cluster, User: "system:kube-proxy", Client: true},
		{Name: "mni-netd", Authority: pki.Cluster, User: UserNetdPrefix + n.Name(), Groups: []string{GroupNetd}, Client: true},
		{Name: "mni-bgpd", Authority: pki.Cluster, User: UserBgpdPrefix + n.Name(), Groups: []string{GroupBgpd}, Client: true},
		{Name: "mni-dns", Authority: pki.Cluster, User: UserDNSPrefix + n.Name(), Groups: []string{GroupDNS}, Client: true},
	}
	for i := range all {
		all[i].Dir = nodePKI(n)
	}
	return all
}

// nodePKI is in the node's own state: a node sees its own certificates and nobody else's.
func nodePKI(n instance.Node) string { return filepath.Join(n.StateDir(), "pki") }

// nodeCA is the node's copy of the cluster authority's certificate.
func nodeCA(n instance.Node) string { return filepath.Join(n.StateDir(), "pki", "ca.crt") }
