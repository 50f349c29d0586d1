package controller

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(apiserver.Main(m))
}

// patience bounds each wait for a condition.
const patience = 5 * time.Minute

func testScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		panic(err)
	}
	if err := netv1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return scheme
}

// world is a test's view of the API server: a client without a cache, and controllers that the test starts and stops.
type world struct {
	t testing.TB
	client.Client
	server *rest.Config
	ctx    context.Context
	config Config
	// wrap, when set, stands between the controllers and the API server.
	wrap func(client.Client) client.Client
	stop func()
	// stay leaves everything there when the test ends.
	stay bool
}

// newWorld makes an empty world and starts the controllers. When the test ends everything is asked to go at once, and the
// test fails if something stays.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := idleWorld(t)
	w.start()
	w.eventually("the default network is ready", func() bool {
		return w.isReady(w.subnet(netv1.DefaultSubnet))
	})
	return w
}

// idleWorld is a world without controllers yet.
func idleWorld(t testing.TB) *world {
	t.Helper()
	server := apiserver.Shared(t)
	server.QPS = -1
	c, err := client.New(server, client.Options{Scheme: testScheme()})
	require.NoError(t, err)
	// The clean-up outlives the test's own context.
	w := &world{t: t, server: server, Client: c, ctx: context.Background(), config: testConfig()}
	t.Cleanup(w.clear)
	return w
}

// start starts the controllers.
func (w *world) start() {
	w.t.Helper()
	mgr, err := ctrl.NewManager(w.server, ctrl.Options{
		Scheme:  testScheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{ByObject: CacheByObject()},
		// controller-runtime 0.24's priority queue can hang when it is shut down, as cmd/mni-cloud says.
		Controller: config.Controller{SkipNameValidation: ptr(true), UsePriorityQueue: ptr(false)},
	})
	require.NoError(w.t, err)
	c := client.WithFieldOwner(mgr.GetClient(), netv1.FieldOwner)
	if w.wrap != nil {
		c = w.wrap(c)
	}
	require.NoError(w.t, setup(w.ctx, mgr, w.config, c))
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the controllers ended with: %v", err)
		}
		w.stop = nil
	}
	require.True(w.t, mgr.GetCache().WaitForCacheSync(ctx))
}

// restart stops the controllers and starts new ones.
func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

func testConfig() Config {
	cfg, err := Config{InfrastructureCIDR: prefix("198.18.0.0/17"), Quarantine: time.Second, PortQuarantine: time.Second}.complete()
	if err != nil {
		panic(err)
	}
	return cfg
}

// clear asks everything to go at once and waits until it is gone.
func (w *world) clear() {
	if w.stay {
		return
	}
	if w.stop == nil {
		w.wrap = nil
		w.start()
	}
	defer func() { w.stop() }()
	var pods corev1.PodList
	require.NoError(w.t, w.List(w.ctx, &pods))
	namespaces := map[string]bool{}
	for i := range pods.Items {
		namespaces[pods.Items[i].Namespace] = true
		if len(pods.Items[i].Finalizers) > 0 {
			w.deletePod(&pods.Items[i])
		}
	}
	for ns := range namespaces {
		// Many take longer than the API server gives one request: what it did not come to is asked for again.
		w.eventually("the Pods are asked to go", func() bool {
			return w.DeleteAllOf(w.ctx, &corev1.Pod{}, client.InNamespace(ns), client.GracePeriodSeconds(0)) == nil
		})
	}
	for _, kind := range []client.Object{
		&netv1.VPC{}, &netv1.Subnet{}, &netv1.NetworkInterface{}, &netv1.ExternalIP{}, &netv1.FloatingIP{}, &netv1.NATGateway{}, &netv1.PortBlock{}, &netv1.VPCPeering{},
	} {
		w.eventually(fmt.Sprintf("every %T is asked to go", kind), func() bool { return w.DeleteAllOf(w.ctx, kind) == nil })
	}
	w.eventually("everything is gone and the default network is made anew", func() bool {
		var vpcs netv1.VPCList
		var subnets netv1.SubnetList
		var nics netv1.NetworkInterfaceList
		var leases netv1.IPLeaseList
		var eips netv1.ExternalIPList
		var fips netv1.FloatingIPList
		var gateways netv1.NATGatewayList
		for _, list := range []client.ObjectList{&vpcs, &subnets, &nics, &leases, &eips, &fips, &gateways} {
			if err := w.List(w.ctx, list); err != nil {
				return false
			}
		}
		return len(vpcs.Items) == 1 && len(subnets.Items) == 1 && len(nics.Items)+len(leases.Items)+len(eips.Items)+len(fips.Items)+len(gateways.Items) == 0 &&
			vpcs.Items[0].DeletionTimestamp.IsZero() && subnets.Items[0].DeletionTimestamp.IsZero()
	})
	require.NoError(w.t, w.DeleteAllOf(w.ctx, &netv1.AddressPool{}), "a pool may go once nothing has its addresses")
}

// eventually waits until the condition holds.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	if !w.until(holds) {
		w.t.Fatalf("not within %s: %s\n%s", patience, what, w.dump())
	}
}

func (w *world) until(holds func() bool) bool {
	deadline := time.After(patience)
	// Often at first, then ever less: looking takes the API server's time from the controllers.
	pause := 10 * time.Millisecond
	for !holds() {
		select {
		case <-deadline:
			return false
		case <-time.After(pause):
			pause = min(pause*5/4, time.Second)
		}
	}
	return true
}

// dump tells how everything is, for failures.
func (w *world) dump() string {
	var b strings.Builder
	var vpcs netv1.VPCList
	var subnets netv1.SubnetList
	var nics netv1.NetworkInterfaceList
	var leases netv1.IPLeaseList
	for _, list := range []client.ObjectList{&vpcs, &subnets, &nics, &leases} {
		if err := w.List(w.ctx, list); err != nil {
			return err.Error()
		}
	}
	for _, o := range vpcs.Items {
		fmt.Fprintf(&b, "VPC %s deleting=%v %+v\n", o.Name, o.DeletionTimestamp, o.Status)
	}
	for _, o := range subnets.Items {
		fmt.Fprintf(&b, "Subnet %s deleting=%v %+v\n", o.Name, o.DeletionTimestamp, o.Status)
	}
	for i, o := range nics.Items {
		if i == 20 {
			fmt.Fprintf(&b, "and %d more\n", len(nics.Items)-i)
			break
		}
		fmt.Fprintf(&b, "NetworkInterface %s deleting=%v %+v %+v\n", o.Name, o.DeletionTimestamp, o.Spec.Pod, o.Status)
	}
	for i, o := range leases.Items {
		if i == 20 {
			fmt.Fprintf(&b, "and %d more\n", len(leases.Items)-i)
			break
		}
		fmt.Fprintf(&b, "IPLease %s %+v\n", o.Name, o.Spec)
	}
	return b.String()
}

// make creates objects.
func (w *world) make(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		require.NoError(w.t, w.Create(w.ctx, o))
	}
}

// namespace makes a namespace of its own for the test.
func (w *world) namespace() string {
	w.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}
	w.make(ns)
	return ns.Name
}

// network makes a VPC for a namespace, with one Subnet, and waits until both are ready.
func (w *world) network(namespace, name, cidr string) *netv1.Subnet {
	w.t.Helper()
	w.make(newVPC(name, namespace), newSubnet(name, name, cidr))
	w.eventually("Subnet "+name+" is ready", func() bool { return w.isReady(w.subnet(name)) })
	return w.subnet(name)
}

// pod makes a Pod; annotations are pairs of key and value.
func (w *world) pod(namespace, name string, annotations ...string) *corev1.Pod {
	w.t.Helper()
	pod := newPod(namespace, name, annotations...)
	w.make(pod)
	return pod
}

// schedule binds the Pod to a node.
func (w *world) schedule(pod *corev1.Pod, node string) {
	w.t.Helper()
	require.NoError(w.t, w.SubResource("binding").Create(w.ctx, pod, &corev1.Binding{
		Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}))
}

// finish sets the Pod's phase.
func (w *world) finish(pod *corev1.Pod, phase corev1.PodPhase) {
	w.t.Helper()
	base := pod.DeepCopy()
	pod.Status.Phase = phase
	require.NoError(w.t, w.Status().Patch(w.ctx, pod, client.MergeFrom(base)))
}

// deletePod deletes the Pod object as a kubelet does that has stopped its containers.
func (w *world) deletePod(pod *corev1.Pod) {
	w.t.Helper()
	var now corev1.Pod
	if err := w.Get(w.ctx, client.ObjectKeyFromObject(pod), &now); err == nil && len(now.Finalizers) > 0 {
		base := now.DeepCopy()
		now.Finalizers = nil
		require.NoError(w.t, client.IgnoreNotFound(w.Patch(w.ctx, &now, client.MergeFrom(base))))
	}
	require.NoError(w.t, client.IgnoreNotFound(w.Delete(w.ctx, pod, client.GracePeriodSeconds(0))))
}

// remove asks an object to go.
func (w *world) remove(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, client.IgnoreNotFound(w.Delete(w.ctx, o)))
}

func newVPC(name string, namespaces ...string) *netv1.VPC {
	return &netv1.VPC{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.VPCSpec{Namespaces: namespaces}}
}

func newSubnet(name, vpc, cidr string) *netv1.Subnet {
	return &netv1.Subnet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.SubnetSpec{VPC: vpc, CIDR: cidr}}
}

func newPod(namespace, name string, annotations ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for i := 0; i+1 < len(annotations); i += 2 {
		pod.Annotations[annotations[i]] = annotations[i+1]
	}
	return pod
}

func ptr[T any](v T) *T { return &v }
