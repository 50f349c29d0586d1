package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/writes"
)

func TestTheSteadyStateCostsNoWrites(t *testing.T) {
	w := newTenant(t)
	startNetwork(t)
	stop := runControllers(t, nil)
	w.subnet("web", "10.0.1.0/24")
	c, waits := w.container("web-0", "web"), w.container("waits", "none")
	w.bind(c, "node-1", "")
	w.untilPhase(c, status.Ready)
	w.untilReason(waits, "SubnetNotFound")
	stop()

	// A controller that starts reconciles everything there is; a marker that comes after it shows that it has.
	log := writes.New(0)
	t.Cleanup(runControllers(t, log))
	other := newTenant(t)
	other.untilReason(other.container("marker", "none"), "SubnetNotFound")
	for _, line := range log.Lines() {
		require.NotContains(t, line, w.namespace, "all writes: %v", log.Lines())
	}
}

// TestAControllerThatDiesAtAnyWriteLeavesNothingBehind lets it die before each write of a Container's whole life:
// made, changed, deleted.
func TestAControllerThatDiesAtAnyWriteLeavesNothingBehind(t *testing.T) {
	startNetwork(t)
	for n := 1; ; n++ {
		reached := false
		ok := t.Run(fmt.Sprintf("write %d", n), func(t *testing.T) {
			w := newTenant(t)
			w.subnet("web", "10.0.1.0/24")
			log := writes.New(n)
			stop := runControllers(t, log)
			defer func() { stop() }()
			revive := func() {
				if log.Dead() && !reached {
					reached = true
					stop()
					stop = runControllers(t, nil)
				}
			}
			c := w.container("web-0", "web")
			nic := w.interfaceOf(c)
			w.live(c, revive, func() bool { return w.read(c) && c.Status.Phase == status.Ready })
			address := c.Status.Address

			before := c.DeepCopy()
			c.Spec.Image = "registry.mni.internal/mni/whoami:2"
			require.NoError(t, w.Patch(w.ctx, c, client.MergeFrom(before)))
			w.live(c, revive, func() bool {
				return w.read(c) && c.Status.Phase == status.Ready && c.Status.ObservedGeneration == c.Generation
			})
			require.Equal(t, address, c.Status.Address)

			require.NoError(t, w.Delete(w.ctx, c))
			w.live(c, revive, func() bool { return !w.read(c) })
			require.False(t, w.read(w.podOf(c)))
			require.False(t, w.read(nic))
		})
		if !ok || !reached {
			break
		}
	}
}

// live waits for the condition, doing meanwhile what scheduler and kubelet do, and looking after the controller.
func (w *tenant) live(c *ctrv1.Container, meanwhile func(), ok func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		require.False(w.t, time.Now().After(deadline), "not within %s: %v", patience, c.Status)
		meanwhile()
		pod := w.podOf(c)
		if w.read(pod) {
			switch {
			case pod.DeletionTimestamp != nil:
				w.end(pod)
			case pod.Spec.NodeName == "":
				w.bind(c, "node-1", "")
			}
		}
		<-tick.C
	}
}

func TestDeletingContainersAndTheirSubnetInAnyOrderConverges(t *testing.T) {
	startControllers(t)
	for _, subnetFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("subnet first: %v", subnetFirst), func(t *testing.T) {
			w := newTenant(t)
			subnet := w.subnet("web", "10.0.1.0/24")
			c := w.container("web-0", "web")
			pod := w.bind(c, "node-1", "")
			w.untilPhase(c, status.Ready)
			if subnetFirst {
				require.NoError(t, w.Delete(w.ctx, subnet))
			}
			require.NoError(t, w.Delete(w.ctx, c))
			if !subnetFirst {
				require.NoError(t, w.Delete(w.ctx, subnet))
			}
			w.end(pod)
			w.untilGone(c)
			require.False(t, w.read(w.interfaceOf(c)))
		})
	}
}

// watched is a client that looks at each deletion before it is sent.
type watched struct {
	client.Client
	deletes func(client.Object)
}

func (c watched) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	c.deletes(obj)
	return c.Client.Delete(ctx, obj, opts...)
}

func TestNoContainerShowsAnAddressThatAnotherMayHave(t *testing.T) {
	w := newTenant(t)
	startNetwork(t)
	var seen atomic.Int64
	mgr := newManager(t)
	require.NoError(t, setup(t.Context(), mgr, Config{}, watched{mgr.GetClient(), func(obj client.Object) {
		nic, ok := obj.(*netv1.NetworkInterface)
		if !ok || nic.Spec.Namespace != w.namespace {
			return
		}
		c := &ctrv1.Container{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: nic.Labels[ctrv1.LabelContainer]}}
		if assert.NoError(t, w.Get(w.ctx, client.ObjectKeyFromObject(c), c)) {
			assert.Empty(t, c.Status.Address, "%s, whose interface is asked to go", c.Name)
		}
		seen.Add(1)
	}}, time.Now))
	t.Cleanup(run(t, mgr))
	subnet := w.subnet("web", "10.0.1.0/24")

	deleted, moved := w.container("deleted", "web"), w.container("moved", "web")
	podOfDeleted, podOfMoved := w.bind(deleted, "node-1", ""), w.bind(moved, "node-1", "")
	w.untilPhase(deleted, status.Ready)
	w.untilPhase(moved, status.Ready)
	require.NoError(t, w.Delete(w.ctx, deleted))
	w.end(podOfDeleted)
	w.untilGone(deleted)
	require.EqualValues(t, 1, seen.Load())

	require.NoError(t, w.Delete(w.ctx, subnet))
	again := w.subnet("web", "10.0.2.0/24")
	w.end(podOfMoved)
	nic := w.interfaceOf(moved)
	until(w, "is in the new Subnet", nic, func(n *netv1.NetworkInterface) bool { return n.Spec.Subnet == string(again.UID) })
	require.EqualValues(t, 2, seen.Load())
	w.bind(moved, "node-1", podOfMoved.UID)
	until(w, "has an address of the new Subnet", moved, func(c *ctrv1.Container) bool { return strings.HasPrefix(c.Status.Address, "10.0.2.") })
}

func TestAContainerWhoseInterfaceSomebodyDeletedShowsTheAddressThatItsPodUses(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	c := w.container("web-0", "web")
	pod := w.bind(c, "node-1", "")
	w.untilPhase(c, status.Ready)
	address, nic := c.Status.Address, w.interfaceOf(c)
	until(w, "is attached", nic, func(n *netv1.NetworkInterface) bool { return n.Spec.Pod != nil })
	require.NoError(t, w.Delete(w.ctx, nic))
	until(w, "waits for the Pod", nic, func(n *netv1.NetworkInterface) bool {
		return strings.Contains(conditions.Message(n.Status.Conditions), "its Pod")
	})
	w.setStatus(pod, func(s *corev1.PodStatus) { s.ContainerStatuses[0].RestartCount = 1 }) // the Container is looked at
	until(w, "is told of the restart", c, func(c *ctrv1.Container) bool { return c.Status.Restarts == 1 })
	require.Equal(t, address, c.Status.Address)
}

func TestNothingIsMadeInANamespaceThatIsBeingDeleted(t *testing.T) {
	w := newTenant(t)
	startNetwork(t)
	log := writes.New(0)
	mgr := newManager(t)
	require.NoError(t, setup(t.Context(), mgr, Config{}, log.Client(mgr.GetClient()), time.Now))
	t.Cleanup(run(t, mgr))
	subnet := &vpcv1.Subnet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"}, Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.0.1.0/24"}}
	require.NoError(t, w.Create(w.ctx, subnet))
	c := w.container("web-0", "web")
	w.untilReason(c, "SubnetNotReady")

	require.NoError(t, w.Delete(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}))
	namespace := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	require.Eventually(t, func() bool {
		err := mgr.GetClient().Get(w.ctx, client.ObjectKey{Name: w.namespace}, namespace)
		return err == nil && namespace.DeletionTimestamp != nil
	}, patience, 10*time.Millisecond)
	w.makeReady(subnet)
	require.Contains(t, w.untilReason(c, "NamespaceDeleting"), "nothing new is made in it")
	for _, line := range log.Lines() {
		require.NotContains(t, line, "create *v1alpha1.NetworkInterface /"+string(c.UID))
	}
	require.False(t, w.read(w.interfaceOf(c)))
	require.NoError(t, w.Delete(w.ctx, c))
	w.untilGone(c)
}

func TestAContainerOnALostNodeCanBeDeleted(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	lost := w.node("lost-"+w.namespace, corev1.ConditionUnknown)
	c := w.container("web-0", "web")
	w.bind(c, lost.Name, "")
	w.untilPhase(c, status.Ready)
	ahead.Store(int64(time.Minute))
	t.Cleanup(func() { ahead.Store(0) })
	require.NoError(t, w.Delete(w.ctx, c))
	w.untilGone(c)
}

func TestAPodThatTheOwnersPolicyRefusesIsTold(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "no-odd-images-"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: "object.spec.containers.all(c, c.image != 'odd')", Message: "no odd images here"}},
		},
	}
	require.NoError(t, w.Create(w.ctx, policy))
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	require.NoError(t, w.Create(w.ctx, binding))
	t.Cleanup(func() {
		require.NoError(t, errors.Join(w.Delete(context.Background(), binding), w.Delete(context.Background(), policy)))
	})
	require.Eventually(t, func() bool {
		probe := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "odd"}}},
		}
		return apierrors.IsInvalid(w.Create(w.ctx, probe, client.DryRunAll))
	}, patience, 50*time.Millisecond, "the policy is in force")

	c := &ctrv1.Container{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "odd"}, Spec: ctrv1.ContainerSpec{Subnet: "web", Image: "odd"}}
	require.NoError(t, w.Create(w.ctx, c))
	require.Contains(t, w.untilReason(c, "SpecRefused"), "no odd images here")
	require.Equal(t, status.Error, c.Status.Phase)
}
