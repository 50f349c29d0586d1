package controller

import (
	"context"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	network "github.com/mnicloud/mnicloud/network/controller"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend/netbackend"
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
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, netv1.AddToScheme, vpcv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

// tenant is a test's namespace, and a client without a cache.
type tenant struct {
	t *testing.T
	client.Client
	ctx       context.Context
	namespace string
}

// newTenant makes a namespace. When the test ends its Vpcs and Subnets are asked to go, and the test fails if one stays.
func newTenant(t *testing.T) *tenant {
	t.Helper()
	c, err := client.New(server(t), client.Options{Scheme: testScheme()})
	require.NoError(t, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	return &tenant{t: t, Client: c, ctx: context.Background(), namespace: ns.Name}
}

// startControllers runs the network's and the VPC service's controllers until the test ends.
func startControllers(t *testing.T) {
	t.Helper()
	startNetwork(t)
	t.Cleanup(runControllers(t, nil))
}

// startNetwork runs the network's controllers until the test ends.
func startNetwork(t *testing.T) {
	t.Helper()
	mgr := newManager(t)
	require.NoError(t, network.SetupWithManager(t.Context(), mgr, network.Config{InfrastructureCIDR: netip.MustParsePrefix("198.18.0.0/17")}))
	t.Cleanup(run(t, mgr))
}

// runControllers runs the VPC service's controllers until stop is called. What they write goes through the log, when there
// is one.
func runControllers(t *testing.T, log *writes.Log) (stop func()) {
	t.Helper()
	mgr := newManager(t)
	c := mgr.GetClient()
	if log != nil {
		c = log.Client(c)
	}
	require.NoError(t, netbackend.AddIndexes(t.Context(), mgr.GetFieldIndexer()))
	require.NoError(t, setup(t.Context(), mgr, Config{
		Backend:       netbackend.New(c, mgr.GetAPIReader()),
		ReservedCIDRs: []netip.Prefix{netip.MustParsePrefix("172.30.0.0/16")},
	}, c))
	return run(t, mgr)
}

func newManager(t *testing.T) ctrl.Manager {
	t.Helper()
	mgr, err := ctrl.NewManager(server(t), ctrl.Options{
		Scheme:  testScheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
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

func (w *tenant) vpc(name, cidr string) *vpcv1.Vpc {
	w.t.Helper()
	vpc := &vpcv1.Vpc{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: vpcv1.VpcSpec{CIDR: cidr}}
	require.NoError(w.t, w.Create(w.ctx, vpc))
	return vpc
}

func (w *tenant) subnet(name, vpc, cidr string) *vpcv1.Subnet {
	w.t.Helper()
	subnet := &vpcv1.Subnet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: vpcv1.SubnetSpec{VPC: vpc, CIDR: cidr}}
	require.NoError(w.t, w.Create(w.ctx, subnet))
	return subnet
}

// interfaceIn makes a retained interface in the Subnet, as a workload's controller does.
func (w *tenant) interfaceIn(subnet *vpcv1.Subnet, holder string) *netv1.NetworkInterface {
	w.t.Helper()
	nic := &netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Annotations: map[string]string{netv1.AnnotationHolder: holder}},
		Spec:       netv1.NetworkInterfaceSpec{Subnet: string(subnet.UID), Namespace: w.namespace, Retain: true},
	}
	require.NoError(w.t, w.Create(w.ctx, nic))
	return nic
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
	require.Eventually(w.t, func() bool { return w.read(obj) && ok(obj) }, patience, 10*time.Millisecond, "%s\n%s", what, lazily(func() string { return describe(obj) }))
}

// untilGone waits for the object not to exist.
func (w *tenant) untilGone(obj client.Object) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return !w.read(obj) }, patience, 10*time.Millisecond, "%s", lazily(func() string { return "still there: " + describe(obj) }))
}

// lazily is a message that is made when it is printed.
type lazily func() string

func (f lazily) String() string { return f() }

func (w *tenant) untilReady(objects ...client.Object) {
	w.t.Helper()
	for _, obj := range objects {
		until(w, "is ready", obj, func(o client.Object) bool {
			c := readyOf(o)
			return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == o.GetGeneration()
		})
	}
}

// untilReason waits for the Ready condition to have the reason, and returns its message.
func (w *tenant) untilReason(obj client.Object, reason string) string {
	w.t.Helper()
	until(w, "has reason "+reason, obj, func(o client.Object) bool {
		c := readyOf(o)
		return c != nil && c.Reason == reason
	})
	return readyOf(obj).Message
}

func readyOf(o client.Object) *metav1.Condition {
	return meta.FindStatusCondition(conditionsOf(o), status.ConditionReady)
}

func conditionsOf(o client.Object) []metav1.Condition {
	switch o := o.(type) {
	case *vpcv1.Vpc:
		return o.Status.Conditions
	case *vpcv1.Subnet:
		return o.Status.Conditions
	case *vpcv1.RouteTable:
		return o.Status.Conditions
	case *vpcv1.SecurityGroup:
		return o.Status.Conditions
	case *vpcv1.ExternalIP:
		return o.Status.Conditions
	case *vpcv1.FloatingIP:
		return o.Status.Conditions
	case *vpcv1.NATGateway:
		return o.Status.Conditions
	case *vpcv1.VpcPeering:
		return o.Status.Conditions
	}
	return nil
}

func describe(o client.Object) string {
	text := o.GetNamespace() + "/" + o.GetName()
	for _, c := range conditionsOf(o) {
		text += "\n  " + c.Type + "=" + string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	return text
}
