package main

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(apiserver.Main(m))
}

// patience bounds each wait for a condition.
const patience = 30 * time.Second

// user is who the controllers are in the tests: somebody with the rights of services' roles, and no others.
const user = "mni-cloud-under-test"

// cloud is an API server on which mni-cloud runs; the test is the scheduler and the kubelets.
type cloud struct {
	client.Client
	t   *testing.T
	ctx context.Context
}

// newCloud runs all controllers until the test ends, with the rights that the roles give them.
func newCloud(t *testing.T) *cloud {
	t.Helper()
	config := apiserver.Shared(t)
	config.QPS = -1
	o := &options{services: services, metricsAddress: "0", healthAddress: "0"}
	restricted := rest.CopyConfig(config)
	restricted.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	mgr, err := o.manager(restricted)
	require.NoError(t, err)
	c, err := client.New(config, client.Options{Scheme: mgr.GetScheme()})
	require.NoError(t, err)
	w := &cloud{Client: c, t: t, ctx: context.Background()}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: authv1.SystemNamespace}})
	w.grant("mni-network-controller", "network")
	// What Kubernetes' own controller aggregates into one.
	w.grantFrom("mni-dependency-definitions", "platform/dependency/config/rbac/role.yaml")
	w.grantFrom("mni-vpc-dependency", "services/vpc/config/rbac/dependency.yaml")
	w.grantFrom("mni-ctr-dependency", "services/ctr/config/rbac/dependency.yaml")
	w.grantFrom("mni-auth-dependency", "services/auth/config/rbac/dependency.yaml")
	w.grant("mni-auth-controller", "services/auth")
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: authv1.SystemNamespace, Name: "mni-auth-controller-under-test"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "mni-auth-controller"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	w.grant("mni-vpc-controller", "services/vpc")
	w.grant("mni-ctr-controller", "services/ctr")

	require.NoError(t, o.setup(t.Context(), mgr, netip.MustParsePrefix("198.18.0.0/17"), nil))
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	require.True(t, mgr.GetCache().WaitForCacheSync(ctx))
	return w
}

// grant gives the user the role of a room.
func (w *cloud) grant(role, room string) {
	w.t.Helper()
	w.grantFrom(role, filepath.Join(room, "config/rbac/role.yaml"))
}

// grantFrom gives the user a role that is in a file.
func (w *cloud) grantFrom(role, path string) {
	w.t.Helper()
	for _, obj := range w.documents(path) {
		w.create(obj)
	}
	w.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role + "-under-test"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
}

func (w *cloud) create(obj client.Object) {
	w.t.Helper()
	if err := w.Create(w.ctx, obj); !apierrors.IsAlreadyExists(err) {
		require.NoError(w.t, err)
	}
}

// documents reads the objects in a YAML file of the repository.
func (w *cloud) documents(path string) []*unstructured.Unstructured {
	w.t.Helper()
	file, err := os.Open(filepath.Join(apiserver.Root(), path))
	require.NoError(w.t, err)
	defer file.Close()
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	var out []*unstructured.Unstructured
	for {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(&obj.Object); err != nil {
			require.ErrorContains(w.t, err, "EOF")
			return out
		}
		if len(obj.Object) > 0 {
			out = append(out, obj)
		}
	}
}

func (w *cloud) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, patience, 20*time.Millisecond, what)
}

// kubelets binds and runs all Pods, and ends those that were asked to go. It tells how many run.
func (w *cloud) kubelets(namespaces ...string) (running int) {
	w.t.Helper()
	for _, namespace := range namespaces {
		var pods corev1.PodList
		require.NoError(w.t, w.List(w.ctx, &pods, client.InNamespace(namespace)))
		for i := range pods.Items {
			pod := &pods.Items[i]
			switch {
			case pod.DeletionTimestamp != nil:
				require.NoError(w.t, client.IgnoreNotFound(w.Delete(w.ctx, pod, client.GracePeriodSeconds(0))))
			case pod.Spec.NodeName == "":
				w.run(pod)
			default:
				running++
			}
		}
	}
	return running
}

// node is there and answers.
func (w *cloud) node(name string) {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := w.Create(w.ctx, node)
	if apierrors.IsAlreadyExists(err) {
		return
	}
	require.NoError(w.t, err)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(w.t, w.Status().Update(w.ctx, node))
}

func (w *cloud) run(pod *corev1.Pod) {
	w.t.Helper()
	node := pod.Spec.NodeSelector[corev1.LabelHostname]
	if node == "" {
		node = "node-1"
	}
	w.node(node)
	err := w.SubResource("binding").Create(w.ctx, pod, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	})
	if apierrors.IsNotFound(err) {
		return
	}
	require.NoError(w.t, err)
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	require.NoError(w.t, client.IgnoreNotFound(w.Status().Patch(w.ctx, pod, client.MergeFrom(before))))
}

// phases are the phases of all objects of the tenants, by kind and name.
func (w *cloud) phases(namespaces ...string) map[string]status.Phase {
	w.t.Helper()
	out := map[string]status.Phase{}
	for _, namespace := range namespaces {
		var vpcs vpcv1.VpcList
		var subnets vpcv1.SubnetList
		var containers ctrv1.ContainerList
		for _, list := range []client.ObjectList{&vpcs, &subnets, &containers} {
			require.NoError(w.t, w.List(w.ctx, list, client.InNamespace(namespace)))
		}
		for _, o := range vpcs.Items {
			out["Vpc "+namespace+"/"+o.Name] = o.Status.Phase
		}
		for _, o := range subnets.Items {
			out["Subnet "+namespace+"/"+o.Name] = o.Status.Phase
		}
		for _, o := range containers.Items {
			out["Container "+namespace+"/"+o.Name] = o.Status.Phase
		}
	}
	return out
}

// tenants' objects of the network, by kind, but for leases that only wait for their quarantine to end.
func (w *cloud) projected() (left []string) {
	w.t.Helper()
	var vpcs netv1.VPCList
	var subnets netv1.SubnetList
	var nics netv1.NetworkInterfaceList
	for _, list := range []client.ObjectList{&vpcs, &subnets, &nics} {
		require.NoError(w.t, w.List(w.ctx, list))
	}
	for _, o := range vpcs.Items {
		if o.Name != netv1.DefaultVPC {
			left = append(left, "VPC "+o.Name)
		}
	}
	for _, o := range subnets.Items {
		if o.Name != netv1.DefaultSubnet {
			left = append(left, "Subnet "+o.Name)
		}
	}
	for _, o := range nics.Items {
		left = append(left, "NetworkInterface "+o.Name)
	}
	var leases netv1.IPLeaseList
	require.NoError(w.t, w.List(w.ctx, &leases))
	for i := range leases.Items {
		if leases.Items[i].Spec.ReleasedAt == nil {
			left = append(left, "IPLease "+leases.Items[i].Name)
		}
	}
	return left
}

// quickStart declares the quick start, in the order of its files or the other way round.
func (w *cloud) quickStart(backwards bool) []*unstructured.Unstructured {
	w.t.Helper()
	objects := append(w.documents("examples/quickstart/red.yaml"), w.documents("examples/quickstart/blue.yaml")...)
	for _, name := range []string{"red", "blue"} {
		namespace := &unstructured.Unstructured{}
		namespace.SetAPIVersion("v1")
		namespace.SetKind("Namespace")
		namespace.SetName(name)
		w.create(namespace)
	}
	var out []*unstructured.Unstructured
	for i := range objects {
		obj := objects[i]
		if backwards {
			obj = objects[len(objects)-1-i]
		}
		w.create(obj)
		out = append(out, obj)
	}
	return out
}

// One cloud for both: a process runs its controllers once.
func TestTheControllersRunWithTheRightsOfTheRolesOnly(t *testing.T) {
	w := newCloud(t)
	t.Run("the quick start runs whatever its order, and goes whatever its order", w.testQuickStart)
	t.Run("a Tenant is made, and its members come and go", w.testTenant)
}

func (w *cloud) testQuickStart(t *testing.T) {
	w.t = t
	for _, backwards := range []bool{false, true} {
		objects := w.quickStart(backwards)
		w.eventually("the quick start is ready", func() bool {
			w.kubelets("red", "blue")
			phases := w.phases("red", "blue")
			for _, phase := range phases {
				if phase != status.Ready {
					return false
				}
			}
			return len(phases) == len(objects)
		})
		web := &ctrv1.Container{}
		require.NoError(t, w.Get(w.ctx, client.ObjectKey{Namespace: "red", Name: "red-web-2"}, web))
		require.True(t, strings.HasPrefix(web.Status.Address, "10.0.2."), web.Status.Address)
		require.Equal(t, "node-2", web.Status.Node)
		w.eventually("the Subnets know their Containers", func() bool {
			var list vpcv1.SubnetList
			require.NoError(t, w.List(w.ctx, &list, client.InNamespace("red")))
			return len(list.Items) > 0 && !slices.ContainsFunc(list.Items, func(s vpcv1.Subnet) bool { return len(s.Status.Dependents) == 0 })
		})

		for i := range objects {
			obj := objects[i]
			if backwards {
				obj = objects[len(objects)-1-i]
			}
			require.NoError(t, w.Delete(w.ctx, obj))
		}
		begin := time.Now()
		w.eventually("everything is gone", func() bool {
			w.kubelets("red", "blue")
			return len(w.phases("red", "blue")) == 0 && len(w.projected()) == 0
		})
		t.Logf("gone after %s", time.Since(begin).Round(time.Millisecond))
	}
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	for flag, says := range map[string]string{
		"--services=net,dns":                  `--services: "dns" is none of net, dependency, auth, vpc, ctr`,
		"--reserved-cidr=10.0.0.1/8":          "--reserved-cidr: 10.0.0.1/8 has bits set beyond the prefix length; write 10.0.0.0/8",
		"--infrastructure-cidr=198.18":        `--infrastructure-cidr: "198.18" is not an address range`,
		"--log-level=loud":                    "--log-level",
		"--webhook-address=127.0.0.1:0x":      "--webhook-address",
		"--webhook-address=127.0.0.1:9443":    "--webhook-cert and --webhook-key",
		"--kubeconfig=/does/not/exist/config": "--kubeconfig",
	} {
		c := command()
		c.SetArgs([]string{flag})
		require.ErrorContains(t, c.ExecuteContext(t.Context()), says, flag)
	}
}

func (w *cloud) testTenant(t *testing.T) {
	w.t = t
	for _, obj := range w.documents("services/auth/config/roles/tenant.yaml") {
		w.create(obj)
	}
	tenant := &authv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "red"}, Spec: authv1.TenantSpec{Members: []authv1.Member{{User: "ada", Role: authv1.RoleOwner}}}}
	w.create(tenant)
	w.create(&authv1.User{ObjectMeta: metav1.ObjectMeta{Name: "ada"}})
	w.eventually("the Tenant is ready and ada its owner", func() bool {
		require.NoError(t, w.Get(w.ctx, client.ObjectKeyFromObject(tenant), tenant))
		return tenant.Status.Phase == status.Ready && tenant.Status.Members[0].State == authv1.MemberActive
	})
	require.NoError(t, w.Get(w.ctx, client.ObjectKey{Namespace: tenant.Status.Namespace, Name: "mni-tenant-member"}, &rbacv1.RoleBinding{}))
	account := &authv1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "ci"}, Spec: authv1.ServiceAccountSpec{Role: authv1.RoleMember}}
	w.create(account)
	w.eventually("the ServiceAccount is ready", func() bool {
		require.NoError(t, w.Get(w.ctx, client.ObjectKeyFromObject(account), account))
		return account.Status.Phase == status.Ready
	})
	require.NoError(t, w.Delete(w.ctx, account))
	w.eventually("it is gone", func() bool { return apierrors.IsNotFound(w.Get(w.ctx, client.ObjectKeyFromObject(account), account)) })
	ada := &authv1.User{ObjectMeta: metav1.ObjectMeta{Name: "ada"}}
	require.NoError(t, w.Delete(w.ctx, ada))
	w.eventually("ada is gone", func() bool { return apierrors.IsNotFound(w.Get(w.ctx, client.ObjectKeyFromObject(ada), ada)) })
	w.eventually("there is a signing key", func() bool {
		return w.Get(w.ctx, client.ObjectKey{Namespace: authv1.SystemNamespace, Name: "signing-keys"}, &corev1.Secret{}) == nil
	})
}
