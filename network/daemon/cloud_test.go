package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/apiserver"
	"github.com/mnicloud/mnicloud/test/isolate"
)

// cloud is an API server on a machine (the test's own namespace) with nodes around it on an underlay.
type cloud struct {
	t          testing.TB
	client     client.Client
	kubeconfig string
	proxy      *net.TCPListener
	nodes      []*node
	// machine is a member without Pods; nil unless it runs.
	machine *node
}

// node is a network namespace on the underlay, with a daemon.
type node struct {
	cloud   *cloud
	name    string
	address netip.Addr
	netns   ns.NetNS
	dir     string
	options Options
	// cniVersion is what the runtime speaks.
	cniVersion string
	process    *exec.Cmd
	other      bool // another version runs
}

const (
	underlay       = "underlay"
	machineAddress = "192.0.2.1"
	patience       = 30 * time.Second
	moment         = 20 * time.Millisecond
)

func newCloud(t testing.TB, nodes int) *cloud {
	c := &cloud{t: t}
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, discoveryv1.AddToScheme(scheme))
	require.NoError(t, networkingv1.AddToScheme(scheme))
	require.NoError(t, netv1.AddToScheme(scheme))
	config := apiserver.Shared(t)
	config.QPS = -1
	var err error
	c.client, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	bridge, err := netlink.LinkByName(underlay)
	require.NoError(t, err)
	c.serveAPI(config)
	for i := range nodes {
		c.nodes = append(c.nodes, c.addNode(fmt.Sprintf("node-%d", i+1), netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 2)}), bridge))
	}
	return c
}

// serveAPI makes the API server, which listens on loopback, reachable from the underlay.
func (c *cloud) serveAPI(config *rest.Config) {
	target, err := url.Parse(config.Host)
	require.NoError(c.t, err)
	if target.Host == "" {
		target.Host = config.Host
	}
	listener, err := net.Listen("tcp", machineAddress+":0")
	require.NoError(c.t, err)
	c.proxy = listener.(*net.TCPListener)
	c.t.Cleanup(func() { listener.Close() })
	go forward(listener, target.Host)

	c.kubeconfig = filepath.Join(c.t.TempDir(), "kubeconfig")
	require.NoError(c.t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {
			Server: "https://" + listener.Addr().String(), TLSServerName: "localhost", CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"c": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:  map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}}, CurrentContext: "c",
	}, c.kubeconfig))
}

func forward(listener net.Listener, target string) {
	for {
		in, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", target)
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				_, _ = io.Copy(out, in)
				out.Close()
			}()
			_, _ = io.Copy(in, out)
		}()
	}
}

// forceClsact lets all tests attach with clsact filters, as kernels without tcx do (MNI_TEST_CLSACT=1).
func forceClsact() bool { return os.Getenv("MNI_TEST_CLSACT") == "1" }

// attachesAsAsked fails when the node's daemon has not attached with clsact filters though it should.
func (n *node) attachesAsAsked() {
	t := n.cloud.t
	n.inside(func() {
		vxlan, err := netlink.LinkByName("mnivx")
		require.NoError(t, err)
		filters, err := netlink.FilterList(vxlan, netlink.HANDLE_MIN_INGRESS)
		require.NoError(t, err)
		require.Equal(t, n.options.ForceClsact, len(filters) > 0, "mnivx of %s has %d clsact filters", n.name, len(filters))
	})
}

func (c *cloud) addNode(name string, address netip.Addr, bridge netlink.Link) *node {
	n := &node{cloud: c, name: name, address: address, netns: isolate.Netns(c.t), dir: c.t.TempDir(), cniVersion: "1.0.0"}
	outer := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1500, MasterIndex: bridge.Attrs().Index},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(n.netns.Fd()),
	}
	require.NoError(c.t, netlink.LinkAdd(outer))
	c.t.Cleanup(func() { require.NoError(c.t, netlink.LinkDel(outer)) })
	require.NoError(c.t, netlink.LinkSetUp(outer))
	n.inside(func() {
		eth0, err := netlink.LinkByName("eth0")
		require.NoError(c.t, err)
		addAddress(c.t, eth0, address.String()+"/24")
		for _, name := range []string{"lo", "eth0"} {
			link, err := netlink.LinkByName(name)
			require.NoError(c.t, err)
			require.NoError(c.t, netlink.LinkSetUp(link))
		}
		require.NoError(c.t, netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.ParseIP(machineAddress)}))
	})
	n.options = Options{
		Kubeconfig: c.kubeconfig, NodeName: name, NodeAddress: address, Uplink: "eth0", VXLANPort: 4789,
		ServiceCIDR:        netip.MustParsePrefix("10.0.0.0/24"), // the API server's
		InfrastructureCIDR: netip.MustParsePrefix("198.18.0.0/17"),
		PinPath:            filepath.Join("/sys/fs/bpf", c.t.Name(), name), Socket: filepath.Join(n.dir, "cni.sock"), QueueDir: filepath.Join(n.dir, "queue"),
		CNIConf: filepath.Join(n.dir, "net.d", "10-mni.conflist"), MetricsAddress: address.String() + ":9100",
		ForceClsact: forceClsact(),
	}
	object := &corev1.Node{}
	object.Name = name
	c.create(object)
	object.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.String()}}
	require.NoError(c.t, c.client.Status().Update(c.t.Context(), object))
	return n
}

func addAddress(t testing.TB, link netlink.Link, address string) {
	parsed, err := netlink.ParseAddr(address)
	require.NoError(t, err)
	require.NoError(t, netlink.AddrAdd(link, parsed))
}

func (c *cloud) create(object client.Object) {
	require.NoError(c.t, c.client.Create(c.t.Context(), object))
	c.t.Cleanup(func() {
		require.NoError(c.t, client.IgnoreNotFound(c.client.Delete(context.Background(), object)))
	})
}

func (n *node) inside(f func()) {
	require.NoError(n.cloud.t, n.netns.Do(func(ns.NetNS) error { f(); return nil }))
}

// start runs the daemon in the node's namespace.
func (n *node) start() {
	t := n.cloud.t
	encoded, err := json.Marshal(n.options)
	require.NoError(t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), optionsEnv+"="+string(encoded))
	if n.other {
		cmd.Env = append(cmd.Env, otherVersionEnv+"=1")
	}
	cmd.Stderr = os.Stderr
	n.inside(func() { require.NoError(t, cmd.Start()) })
	n.process = cmd
	t.Cleanup(func() { n.stop(syscall.SIGKILL) })
}

// stop ends the daemon.
func (n *node) stop(signal os.Signal) {
	if n.process == nil {
		return
	}
	_ = n.process.Process.Signal(signal)
	_ = n.process.Wait()
	n.process = nil
}

// awaitReady waits until the daemon says that it is ready.
func (n *node) awaitReady() {
	require.Eventually(n.cloud.t, func() bool { return n.get("/readyz") == "ok\n" }, patience, moment, "%s is not ready", n.name)
}

// get asks the daemon over HTTP, from the machine.
func (n *node) get(path string) string {
	response, err := (&http.Client{Timeout: time.Second}).Get("http://" + n.options.MetricsAddress + path)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
