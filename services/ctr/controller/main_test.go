package controller

import (
	"context"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	network "github.com/mnicloud/mnicloud/network/controller"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/apiserver"
	"github.com/mnicloud/mnicloud/test/writes"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(apiserver.Main(m))
}

// server is the API server that all tests of the package share.
func server(t *testing.T) *rest.Config {
	t.Helper()
	config := apiserver.Shared(t)
	config.QPS = -1
	return config
}

// patience bounds each wait for a condition.
const patience = 2 * time.Minute

func testScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, netv1.AddToScheme, vpcv1.AddToScheme, ctrv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

// tenant is a test's namespace, and a client without a cache. The test is the VPC service, the scheduler and the kubelet.
type tenant struct {
	t *testing.T
	client.Client
	ctx       context.Context
	namespace string
}

func newTenant(t *testing.T) *tenant {
	t.Helper()
	c, err := client.New(server(t), client.Options{Scheme: testScheme()})
	require.NoError(t, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	return &tenant{t: t, Client: c, ctx: context.Background(), namespace: ns.Name}
}

// startControllers runs the network's controllers and that of Containers until the test ends.
func startControllers(t *testing.T) {
	t.Helper()
	startNetwork(t)
	t.Cleanup(runControllers(t, nil))
}

func startNetwork(t *testing.T) {
	t.Helper()
	mgr := newManager(t)
	require.NoError(t, network.SetupWithManager(t.Context(), mgr, network.Config{InfrastructureCIDR: netip.MustParsePrefix("198.18.0.0/17")}))
	t.Cleanup(run(t, mgr))
}

// ahead is how far the controllers' clock is ahead of the world's.
var ahead atomic.Int64

// runControllers runs the controller of Containers until stop is called. What it writes goes through the log, when there
// is one.
func runControllers(t *testing.T, log *writes.Log) (stop func()) {
	t.Helper()
	mgr := newManager(t)
	c := mgr.GetClient()
	if log != nil {
		c = log.Client(c)
	}
	require.NoError(t, setup(t.Context(), mgr, Config{}, c, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))
	return run(t, mgr)
}

func newManager(t *testing.T) ctrl.Manager {
	t.Helper()
	mgr, err := ctrl.NewManager(server(t), ctrl.Options{
		Scheme:  testScheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{ByObject: network.CacheByObject()},
		// controller-runtime 0.24's priority queue can hang when it is shut down, as cmd/mni-cloud says.
		Controller: config.Controller{SkipNameValidation: ptr.To(true), UsePriorityQueue: ptr.To(false)},
	})
	require.NoError(t, err)
	return mgr
}

func run(t *testing.T, mgr ctrl.Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	require.True(t, mgr.GetCache().WaitForCacheSync(ctx))
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controllers ended with: %v", err)
		}
	}
}

// subnet makes a Subnet that is Ready on the network, as the VPC service does.
func (w *tenant) subnet(name, cidr string) *vpcv1.Subnet {
	w.t.Helper()
	subnet := &vpcv1.Subnet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: cidr}}
	require.NoError(w.t, w.Create(w.ctx, subnet))
	home := "vpc-" + string(subnet.UID)
	require.NoError(w.t, w.Create(w.ctx, &netv1.VPC{ObjectMeta: metav1.ObjectMeta{Name: home}, Spec: netv1.VPCSpec{Namespaces: []string{w.namespace}}}))
	part := &netv1.Subnet{ObjectMeta: metav1.ObjectMeta{Name: string(subnet.UID)}, Spec: netv1.SubnetSpec{VPC: home, CIDR: cidr}}
	require.NoError(w.t, w.Create(w.ctx, part))
	w.makeReady(subnet)
	return subnet
}

// makeReady says of a Subnet that it is Ready.
func (w *tenant) makeReady(subnet *vpcv1.Subnet) {
	w.t.Helper()
	before := subnet.DeepCopy()
	s := &subnet.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(subnet, conditions.Ready("Ready", ""))
	s.Attachment = &vpcv1.Attachment{PodAnnotations: map[string]string{netv1.AnnotationSubnet: string(subnet.UID)}}
	require.NoError(w.t, w.Status().Patch(w.ctx, subnet, client.MergeFrom(before)))
}

func (w *tenant) container(name, subnet string) *ctrv1.Container {
	w.t.Helper()
	c := &ctrv1.Container{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       ctrv1.ContainerSpec{Subnet: subnet, Image: "registry.mni.internal/mni/whoami:latest"},
	}
	require.NoError(w.t, w.Create(w.ctx, c))
	return c
}

func (w *tenant) podOf(c *ctrv1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
}

func (w *tenant) interfaceOf(c *ctrv1.Container) *netv1.NetworkInterface {
	return &netv1.NetworkInterface{ObjectMeta: metav1.ObjectMeta{Name: string(c.UID)}}
}

// bind puts the Container's Pod, once it is there and not the one with the UID before, on a node and lets it run. A node that
// does not exist is made.
func (w *tenant) bind(c *ctrv1.Container, node string, before types.UID) *corev1.Pod {
	w.t.Helper()
	if !w.read(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}) {
		w.node(node, corev1.ConditionTrue)
	}
	pod := w.podOf(c)
	until(w, "its Pod is made", pod, func(p *corev1.Pod) bool { return p.UID != before && p.DeletionTimestamp == nil })
	require.NoError(w.t, w.SubResource("binding").Create(w.ctx, pod, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}))
	require.True(w.t, w.read(pod))
	w.setStatus(pod, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: containerName, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	})
	return pod
}

// setStatus does the kubelet's part.
func (w *tenant) setStatus(pod *corev1.Pod, change func(*corev1.PodStatus)) {
	w.t.Helper()
	before := pod.DeepCopy()
	change(&pod.Status)
	require.NoError(w.t, w.Status().Patch(w.ctx, pod, client.MergeFrom(before)))
}

// end ends a Pod that was asked to go, as its kubelet does when its containers have stopped. One that has no node, or has
// failed, is gone as soon as it is asked.
func (w *tenant) end(pod *corev1.Pod) {
	w.t.Helper()
	uid := pod.UID
	require.Eventually(w.t, func() bool { return !w.read(pod) || pod.UID != uid || pod.DeletionTimestamp != nil }, patience, 10*time.Millisecond,
		"Pod %s is asked to go", pod.Name)
	err := w.Delete(w.ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &uid})
	if !apierrors.IsConflict(err) {
		require.NoError(w.t, client.IgnoreNotFound(err))
	}
}

// read reads the object anew; it tells whether the object exists.
func (w *tenant) read(obj client.Object) bool {
	w.t.Helper()
	err := w.Get(w.ctx, client.ObjectKeyFromObject(obj), obj)
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(w.t, err)
	return true
}

// until waits for the object to be as the condition says.
func until[T client.Object](w *tenant, what string, obj T, ok func(T) bool) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.read(obj) && ok(obj) }, patience, 10*time.Millisecond, "%s: %s", obj.GetName(), what)
}

func (w *tenant) untilGone(obj client.Object) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return !w.read(obj) }, patience, 10*time.Millisecond, "%T %s is still there", obj, obj.GetName())
}

func (w *tenant) untilPhase(c *ctrv1.Container, phase status.Phase) {
	w.t.Helper()
	until(w, "is "+string(phase), c, func(c *ctrv1.Container) bool { return c.Status.Phase == phase })
}

// untilReason waits for the Ready condition to have the reason, and returns its message.
func (w *tenant) untilReason(c *ctrv1.Container, reason string) string {
	w.t.Helper()
	until(w, "has reason "+reason, c, func(c *ctrv1.Container) bool {
		ready := meta.FindStatusCondition(c.Status.Conditions, status.ConditionReady)
		return ready != nil && ready.Reason == reason
	})
	return conditions.Message(c.Status.Conditions)
}

// node makes a node that answers, or does not.
func (w *tenant) node(name string, answers corev1.ConditionStatus) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(w.t, w.Create(w.ctx, node))
	w.t.Cleanup(func() { _ = w.Delete(w.ctx, node) })
	w.answer(node, answers)
	return node
}

// answer does the node lifecycle controller's part.
func (w *tenant) answer(node *corev1.Node, ready corev1.ConditionStatus) {
	w.t.Helper()
	before := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	require.NoError(w.t, w.Status().Patch(w.ctx, node, client.MergeFrom(before)))
}
