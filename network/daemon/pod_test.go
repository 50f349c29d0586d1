package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	cnitypes "github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/plugin"
	"github.com/mnicloud/mnicloud/test/isolate"
)

// pod is a Pod's sandbox; its interface's object is made as the network controller would.
type pod struct {
	node  *node
	name  string
	id    string // the container's
	netns ns.NetNS
	nic   *netv1.NetworkInterface
	ports []map[string]any // host ports, as the runtime gives them
	uid   types.UID        // the Pod's
}

// subnet makes a Subnet as the controller would.
func (c *cloud) subnet(name, cidr string, vpc, vni uint32) *netv1.Subnet {
	gateway := netip.MustParsePrefix(cidr).Addr().Next()
	s := &netv1.Subnet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.SubnetSpec{VPC: fmt.Sprint("vpc-", vpc), CIDR: cidr}}
	c.create(s)
	s.Status = netv1.SubnetStatus{VNI: vni, VPCID: vpc, GatewayAddress: gateway.String(), GatewayMAC: fmt.Sprintf("02:00:00:01:%02x:%02x", vni>>8, vni&0xff)}
	require.NoError(c.t, c.client.Status().Update(c.t.Context(), s))
	return s
}

// pod makes a Pod's namespace on the node, and its interface's object, Ready.
func (n *node) pod(name string, s *netv1.Subnet, address, infrastructure string) *pod {
	t := n.cloud.t
	uid := types.UID("uid-" + name)
	p := &pod{node: n, name: name, id: "sandbox-" + name, uid: uid, netns: isolate.Netns(t), nic: &netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{Name: string(uid)},
		Spec: netv1.NetworkInterfaceSpec{
			Subnet: s.Name, Namespace: "shop", Node: n.name, Pod: &netv1.PodReference{Namespace: "shop", Name: name, UID: uid},
		},
	}}
	n.cloud.create(p.nic)
	parsed := netip.MustParseAddr(address).As4()
	p.nic.Status = netv1.NetworkInterfaceStatus{
		Address: address, PrefixLength: int32(netip.MustParsePrefix(s.Spec.CIDR).Bits()), GatewayAddress: s.Status.GatewayAddress,
		MAC: fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", s.Status.VNI&0xff, parsed[1], parsed[2], parsed[3]), InfrastructureAddress: infrastructure,
		VNI: s.Status.VNI, VPCID: s.Status.VPCID,
	}
	p.condition(metav1.ConditionTrue, "Allocated", "")
	return p
}

// condition sets the interface's Ready condition.
func (p *pod) condition(status metav1.ConditionStatus, reason, message string) {
	c := p.node.cloud
	p.nic.Status.Conditions = []metav1.Condition{{
		Type: "Ready", Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
	}}
	require.NoError(c.t, c.client.Status().Update(c.t.Context(), p.nic))
}

// cni is the runtime's side of the plugin: libcni, with the configuration the daemon wrote, at a version of the specification.
func (n *node) cni(version string) (*libcni.CNIConfig, *libcni.NetworkConfigList) {
	t := n.cloud.t
	bin := filepath.Join(n.dir, "bin")
	require.NoError(t, os.MkdirAll(bin, 0o755))
	self, err := os.Executable()
	require.NoError(t, err)
	if err := os.Symlink(self, filepath.Join(bin, plugin.Type)); !os.IsExist(err) {
		require.NoError(t, err)
	}
	data, err := os.ReadFile(n.options.CNIConf)
	require.NoError(t, err)
	list, err := libcni.ConfListFromBytes([]byte(strings.Replace(string(data), `"1.0.0"`, fmt.Sprintf("%q", version), 1)))
	require.NoError(t, err)
	require.Equal(t, version, list.CNIVersion)
	return libcni.NewCNIConfigWithCacheDir([]string{bin}, filepath.Join(n.dir, "cache"), nil), list
}

func (p *pod) runtimeConf() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{CapabilityArgs: map[string]any{"portMappings": p.ports}, ContainerID: p.id, NetNS: p.netns.Path(), IfName: "eth0", Args: [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", "shop"},
		{"K8S_POD_NAME", p.name},
		{"K8S_POD_UID", string(p.uid)},
		{"K8S_POD_INFRA_CONTAINER_ID", p.id},
	}}
}

func (p *pod) add() (*types100.Result, error) {
	cni, list := p.node.cni(p.node.cniVersion)
	result, err := cni.AddNetworkList(p.node.cloud.t.Context(), list, p.runtimeConf())
	if err != nil {
		return nil, err
	}
	if result.Version() != p.node.cniVersion {
		return nil, fmt.Errorf("the result is of version %s", result.Version())
	}
	return types100.NewResultFromResult(result)
}

func (p *pod) mustAdd() *types100.Result {
	result, err := p.add()
	require.NoError(p.node.cloud.t, err)
	return result
}

func (p *pod) del() error {
	cni, list := p.node.cni(p.node.cniVersion)
	return cni.DelNetworkList(p.node.cloud.t.Context(), list, p.runtimeConf())
}

func (p *pod) check() error {
	cni, list := p.node.cni(p.node.cniVersion)
	return cni.CheckNetworkList(p.node.cloud.t.Context(), list, p.runtimeConf())
}

// status asks at 1.1.0: no version before it knows STATUS.
func (n *node) status() error {
	cni, list := n.cni("1.1.0")
	return cni.GetStatusNetworkList(n.cloud.t.Context(), list)
}

// code is that of a CNI error.
func (n *node) code(err error) uint {
	var cniError *cnitypes.Error
	require.ErrorAs(n.cloud.t, err, &cniError)
	return cniError.Code
}

// links are the hosts' ends of attachments on the node.
func (n *node) links() []string {
	var names []string
	n.inside(func() {
		all, err := netlink.LinkList()
		require.NoError(n.cloud.t, err)
		for _, l := range all {
			if strings.HasPrefix(l.Attrs().Alias, "mni-netd attachment ") {
				names = append(names, l.Attrs().Name)
			}
		}
	})
	slices.Sort(names)
	return names
}
