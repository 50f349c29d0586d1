package controller

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
	"github.com/mnicloud/mnicloud/network/config"
)

// daemon is a node's daemon at the API server: with the rights and within the policy that it has in a cloud.
type daemon struct {
	*claim.Claimer
	writes *counting
	world  *world
}

// daemonOf makes the daemon of a node.
func (w *world) daemonOf(node string) *daemon {
	w.t.Helper()
	w.netdRole()
	server := rest.CopyConfig(w.server)
	server.Impersonate = rest.ImpersonationConfig{UserName: "system:mni:netd:" + node, Groups: []string{"system:mni:netd", "system:authenticated"}}
	c, err := client.New(server, client.Options{Scheme: testScheme()})
	require.NoError(w.t, err)
	writes := &counting{}
	return &daemon{Claimer: &claim.Claimer{Client: writes.around(c), Node: node}, writes: writes, world: w}
}

// netdRole gives the daemons' group what it has in a cloud, and installs what admission refuses them.
func (w *world) netdRole() {
	w.t.Helper()
	content, err := config.Roles.ReadFile("rbac/netd.yaml")
	require.NoError(w.t, err)
	role := &rbacv1.ClusterRole{}
	require.NoError(w.t, yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096).Decode(role))
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "netd"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:mni:netd"}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := w.Create(w.ctx, o); !apierrors.IsAlreadyExists(err) {
			require.NoError(w.t, err)
		}
	}
	w.policies()
}

// claim claims an interface for the Pod, as the node's daemon does.
func (d *daemon) claim(pod *corev1.Pod) error {
	has := ""
	var nics netv1.NetworkInterfaceList
	require.NoError(d.world.t, d.world.List(d.world.ctx, &nics))
	for i := range nics.Items {
		if claim.AttachedTo(&nics.Items[i], pod) {
			has = nics.Items[i].Name
		}
	}
	return d.Claim(d.world.ctx, client.ObjectKeyFromObject(pod), pod.UID, has)
}

// claims claims until it succeeds: rights and cached objects of the API server take a moment.
func (d *daemon) claims(pod *corev1.Pod) *netv1.NetworkInterface {
	d.world.t.Helper()
	var err error
	if !d.world.until(func() bool { err = d.claim(pod); return err == nil }) {
		require.NoError(d.world.t, err)
	}
	nic := d.world.nic(claim.InterfaceName(pod))
	require.Equal(d.world.t, metav1.ConditionTrue, readyOf(nic).Status)
	return nic
}

// platformNamespace makes a namespace that may have Pods of the platform.
func (w *world) platformNamespace() string {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-", Labels: map[string]string{netv1.LabelPlatform: netv1.PlatformTrue}}}
	w.make(ns)
	return ns.Name
}

// scheduled makes a Pod on a node.
func (w *world) scheduled(namespace, name, node string, annotations ...string) *corev1.Pod {
	w.t.Helper()
	pod := w.pod(namespace, name, annotations...)
	w.schedule(pod, node)
	require.NoError(w.t, w.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
	return pod
}

func TestWithoutAControllerANodeGivesItsPodsInterfacesThatTheControllerThenLeavesAsTheyAre(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	w.stop()
	node := w.daemonOf("node-1")
	ordinary := w.scheduled(ns, "ordinary", "node-1")
	tenants := w.scheduled(ns, "tenants", "node-1", netv1.AnnotationSubnet, "a", netv1.AnnotationAddress, "10.0.1.7")
	anywhere := w.scheduled(ns, "any", "node-1", netv1.AnnotationSubnet, "a")
	nics := []*netv1.NetworkInterface{node.claims(ordinary), node.claims(tenants), node.claims(anywhere)}
	require.Equal(t, nics[0].Status.Address, nics[0].Status.InfrastructureAddress)
	require.Equal(t, "10.0.1.7", nics[1].Status.Address)
	require.NotEqual(t, nics[1].Status.Address, nics[2].Status.Address)
	addresses := []string{nics[0].Status.Address, nics[1].Status.InfrastructureAddress, nics[2].Status.InfrastructureAddress}
	slices.Sort(addresses)
	require.Len(t, slices.Compact(addresses), 3)

	// The address of a Pod that goes is nobody's until the controller has given it back.
	w.deletePod(tenants)
	again := w.scheduled(ns, "again", "node-1", netv1.AnnotationSubnet, "a", netv1.AnnotationAddress, "10.0.1.7")
	require.ErrorContains(t, node.claim(again), "10.0.1.7")

	before := map[string]string{}
	for _, nic := range []*netv1.NetworkInterface{nics[0], nics[2]} {
		before[nic.Name] = w.nic(nic.Name).ResourceVersion
	}
	w.start()
	w.gone(nics[1])
	require.Equal(t, "10.0.1.7", w.attached(again).Status.Address)
	w.restart()
	for name, version := range before {
		require.Equal(t, version, w.nic(name).ResourceVersion, "adopted without a change")
	}
}

func TestAReplicaOfTheNodeGetsItsInterfaceBackAndOneOfAnotherNodeWaits(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	old := replica(ns, "set", "web-0")
	w.make(old)
	w.schedule(old, "node-1")
	has := w.attached(old)
	w.eventually("its node is known", func() bool { return w.nic(has.Name).Spec.Node == "node-1" })
	w.stop()
	next := func(node string) *corev1.Pod {
		w.deletePod(old)
		pod := replica(ns, "set", "web-0")
		w.make(pod)
		w.schedule(pod, node)
		require.NoError(t, w.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
		old = pod
		return pod
	}
	here, there := w.daemonOf("node-1"), w.daemonOf("node-2")
	pod := next("node-1")
	require.Equal(t, has.Status.Address, here.claims(pod).Status.Address)
	require.NoError(t, here.claim(pod))

	pod = next("node-2")
	require.ErrorContains(t, there.claim(pod), "is on node node-1: only the network controller moves it")
	require.ErrorContains(t, here.claim(pod), `is on node "node-2", not on this node`)
	w.start()
	nic := w.attached(pod)
	require.Equal(t, []string{has.Status.Address, "node-2"}, []string{nic.Status.Address, nic.Spec.Node})
}

func TestAClaimThatEndsAtAnyWriteIsFinishedOrRemoved(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "a", "10.0.1.0/24")
	node := w.daemonOf("node-1")
	w.stop()
	node.claims(w.scheduled(ns, "first", "node-1", netv1.AnnotationSubnet, "a"))
	writes := int64(4)
	require.GreaterOrEqual(t, node.writes.count(), writes, "interface, lease, infrastructure address, status")
	for at := int64(1); at <= writes; at++ {
		for _, how := range []crash{before, after} {
			for _, goesOn := range []bool{true, false} {
				pod := w.scheduled(ns, fmt.Sprintf("p%d-%d-%t", at, how, goesOn), "node-1", netv1.AnnotationSubnet, "a")
				done := node.writes.count()
				node.writes.crash = func(n int64) crash {
					if n == done+at {
						return how
					}
					return lives
				}
				require.ErrorIs(t, node.claim(pod), errCrash)
				node.writes.crash = nil
				if goesOn {
					nic := node.claims(pod)
					require.Len(t, w.leases()[string(nic.UID)], 2)
				} else {
					w.deletePod(pod)
				}
			}
		}
	}
	w.start()
	w.eventually("what is left is what Pods have", func() bool {
		var pods corev1.PodList
		require.NoError(t, w.List(w.ctx, &pods, client.InNamespace(ns)))
		var nics netv1.NetworkInterfaceList
		require.NoError(t, w.List(w.ctx, &nics))
		return len(nics.Items) == len(pods.Items) && len(w.leases()) == len(pods.Items)
	})
}

func TestANodesDaemonWritesInterfacesOfItsOwnNodeOnlyAndNoneThatHasAddresses(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	other := w.scheduled(ns, "other", "node-2")
	theirs := w.attached(other)
	w.eventually("its node is known", func() bool { return w.nic(theirs.Name).Spec.Node == "node-2" })
	theirs = w.nic(theirs.Name)
	w.stop()
	node := w.daemonOf("node-1")
	own := node.claims(w.scheduled(ns, "own", "node-1"))
	pod := w.scheduled(ns, "new", "node-1")
	made := func(change func(*netv1.NetworkInterface)) *netv1.NetworkInterface {
		nic := claim.NewInterface(pod, w.subnet(netv1.DefaultSubnet))
		change(nic)
		return nic
	}
	for says, change := range map[string]func(*netv1.NetworkInterface){
		"own node only":                  func(n *netv1.NetworkInterface) { n.Spec.Node = "node-2" },
		"writes interfaces of its own":   func(n *netv1.NetworkInterface) { n.Spec.Node = "" },
		"for Pods only":                  func(n *netv1.NetworkInterface) { n.Spec.Pod = nil },
		"named by the Pod's UID":         func(n *netv1.NetworkInterface) { n.Name = "web-0" },
		"without platform":               func(n *netv1.NetworkInterface) { n.Spec.Platform = true },
		"retain":                         func(n *netv1.NetworkInterface) { n.Spec.Retain = true },
		"securityGroups":                 func(n *netv1.NetworkInterface) { n.Spec.SecurityGroups = []string{"mine"} },
		"sourceDestCheck cannot be":      func(n *netv1.NetworkInterface) { n.Spec.SourceDestCheck = ptr(false) },
		"the network controller makes o": func(n *netv1.NetworkInterface) { n.Spec.Pod.Namespace = "kube-system" },
	} {
		w.eventually(says, func() bool {
			err := node.Client.Create(w.ctx, made(change), client.DryRunAll)
			return err != nil && bytes.Contains([]byte(err.Error()), []byte(says))
		})
	}
	require.NoError(t, node.Client.Create(w.ctx, made(func(*netv1.NetworkInterface) {}), client.DryRunAll))
	refused := func(patch func(client.Object, client.Patch) error, nic *netv1.NetworkInterface, change func(*netv1.NetworkInterface), says string) {
		t.Helper()
		changed := nic.DeepCopy()
		change(changed)
		err := patch(changed, client.MergeFrom(nic))
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, says)
	}
	spec := func(o client.Object, p client.Patch) error { return node.Client.Patch(w.ctx, o, p) }
	status := func(o client.Object, p client.Patch) error { return node.Client.Status().Patch(w.ctx, o, p) }
	refused(spec, theirs, func(n *netv1.NetworkInterface) { n.Spec.Node = "node-1" }, "own node only")
	refused(spec, theirs, func(n *netv1.NetworkInterface) { n.Finalizers = nil }, "own node only")
	refused(status, theirs, func(n *netv1.NetworkInterface) { n.Status.Address = "198.18.0.77" }, "own node only")
	refused(spec, own, func(n *netv1.NetworkInterface) { n.Spec.Node = "node-2" }, "own node only")
	refused(spec, own, func(n *netv1.NetworkInterface) { n.Spec.Platform = true }, "Pod and node only")
	refused(spec, own, func(n *netv1.NetworkInterface) { n.Spec.Address = "198.18.0.77" }, "Pod and node only")
	refused(spec, own, func(n *netv1.NetworkInterface) { n.Finalizers = nil }, "Pod and node only")
	refused(status, own, func(n *netv1.NetworkInterface) { n.Status.InfrastructureAddress = "198.18.0.77" }, "that have none")
	for _, o := range []client.Object{own, &netv1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "1." + own.Status.Address}}} {
		require.True(t, apierrors.IsForbidden(node.Client.Delete(w.ctx, o)), "%T", o)
	}
	require.ErrorContains(t, node.claim(other), "not on this node")
	platform := platformPod(w.platformNamespace(), "scraper")
	w.make(platform)
	w.schedule(platform, "node-1")
	require.ErrorContains(t, node.claim(platform), "only the network controller gives those interfaces")
	named := w.scheduled(ns, "named", "node-1", netv1.AnnotationInterface, "web-0")
	require.ErrorContains(t, node.claim(named), "NetworkInterface web-0 does not exist, and only the network controller makes it")
	w.deletePod(pod)
	require.ErrorContains(t, node.claim(pod), "not found")
}
