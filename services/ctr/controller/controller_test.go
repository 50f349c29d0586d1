package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

func TestAContainerRunsWithAnAddressOfItsSubnet(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	c := w.container("web-0", "web")
	pod := w.bind(c, "node-1", "")
	w.untilPhase(c, status.Ready)

	nic := w.interfaceOf(c)
	require.True(t, w.read(nic))
	require.Equal(t, nic.Status.Address, c.Status.Address)
	require.Contains(t, pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "MNI_ADDRESS", Value: c.Status.Address})
	require.Equal(t, "node-1", c.Status.Node)
	require.Equal(t, "web-0", c.Status.Pod)
	until(w, "is attached to the Pod", nic, func(n *netv1.NetworkInterface) bool { return n.Spec.Pod != nil && n.Spec.Pod.UID == pod.UID })
}

func TestALostPodIsMadeAgainWithTheSameAddress(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	lose := map[string]func(*corev1.Pod){
		"deleted": func(p *corev1.Pod) {
			require.NoError(t, w.Delete(w.ctx, p, client.GracePeriodSeconds(0)))
		},
		"evicted": func(p *corev1.Pod) {
			w.setStatus(p, func(s *corev1.PodStatus) { s.Phase, s.Reason = corev1.PodFailed, "Evicted" })
			w.end(p)
		},
	}
	for how, lose := range lose {
		t.Run(how, func(t *testing.T) {
			c := w.container(how, "web")
			pod := w.bind(c, "node-1", "")
			w.untilPhase(c, status.Ready)
			nic := w.interfaceOf(c)
			require.True(t, w.read(nic))
			address, mac := nic.Status.Address, nic.Status.MAC

			lose(pod)
			again := w.bind(c, "node-2", pod.UID)
			until(w, "runs again", c, func(c *ctrv1.Container) bool { return c.Status.Phase == status.Ready && c.Status.Node == "node-2" })
			require.Equal(t, address, c.Status.Address)
			require.Contains(t, again.Spec.Containers[0].Env, corev1.EnvVar{Name: "MNI_ADDRESS", Value: address})
			until(w, "follows the Pod", nic, func(n *netv1.NetworkInterface) bool {
				return n.Spec.Pod != nil && n.Spec.Pod.UID == again.UID && n.Spec.Node == "node-2"
			})
			require.Equal(t, address, nic.Status.Address)
			require.Equal(t, mac, nic.Status.MAC)
		})
	}
}

func TestAPodOnALostNodeIsMadeElsewhereAtOnceButOneThatIsSlowToEndIsWaitedFor(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	lost := w.node("lost-"+w.namespace, corev1.ConditionTrue)
	alive := w.node("alive-"+w.namespace, corev1.ConditionTrue)
	gone, slow := w.container("gone", "web"), w.container("slow", "web")
	gonePod, slowPod := w.bind(gone, lost.Name, ""), w.bind(slow, alive.Name, "")
	w.untilPhase(gone, status.Ready)
	address := gone.Status.Address
	nic := w.interfaceOf(gone)
	require.True(t, w.read(nic))
	mac := nic.Status.MAC
	require.NoError(t, w.Delete(w.ctx, gonePod))
	require.NoError(t, w.Delete(w.ctx, slowPod))
	require.Contains(t, w.untilReason(gone, "Replacing"), "is ending")
	require.Contains(t, w.untilReason(slow, "Replacing"), "is ending")

	w.answer(lost, corev1.ConditionUnknown) // nobody moves the clock: it is not waited for
	again := w.bind(gone, alive.Name, gonePod.UID)
	require.Contains(t, again.Spec.Containers[0].Env, corev1.EnvVar{Name: "MNI_ADDRESS", Value: address})
	until(w, "is on the other node", nic, func(n *netv1.NetworkInterface) bool { return n.Spec.Node == alive.Name })
	require.Equal(t, address, nic.Status.Address)
	require.Equal(t, mac, nic.Status.MAC)

	w.later(slow)
	until(w, "is slow", slow, func(c *ctrv1.Container) bool {
		return strings.Contains(conditions.Message(c.Status.Conditions), "slow to end")
	})
	require.True(t, w.read(slowPod))
	require.NotNil(t, slowPod.DeletionTimestamp, "its node answers, so it is waited for")
	w.end(slowPod)
	w.bind(slow, alive.Name, slowPod.UID)
}

func TestThePodsOfANodeThatIsRemovedAreMadeElsewhere(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	node := w.node("removed-"+w.namespace, corev1.ConditionTrue)
	c := w.container("web-0", "web")
	pod := w.bind(c, node.Name, "")
	w.untilPhase(c, status.Ready)
	address := c.Status.Address
	require.NoError(t, w.Delete(w.ctx, node))
	until(w, "is asked to go", pod, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	w.later(c)
	w.bind(c, "node-2", pod.UID)
	until(w, "runs again", c, func(c *ctrv1.Container) bool { return c.Status.Phase == status.Ready && c.Status.Node == "node-2" })
	require.Equal(t, address, c.Status.Address)
}

func TestAContainerHasTheAddressItAsksForOrSaysWhoseFaultItIs(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	ask := func(name, address string) *ctrv1.Container {
		c := &ctrv1.Container{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
			Spec:       ctrv1.ContainerSpec{Subnet: "web", Image: "whoami", Address: address},
		}
		require.NoError(t, w.Create(w.ctx, c))
		return c
	}
	first := ask("first", "10.0.1.77")
	w.bind(first, "node-1", "")
	w.untilPhase(first, status.Ready)
	require.Equal(t, "10.0.1.77", first.Status.Address)
	second, outside := ask("second", "10.0.1.77"), ask("outside", "10.9.9.9")
	require.Contains(t, w.untilReason(second, "AddressInUse"), `spec.address: 10.0.1.77 of Subnet "web" is in use`)
	message := w.untilReason(outside, "AddressInvalid")
	require.Contains(t, message, `spec.address: "10.9.9.9" is outside the Subnet; ask for an address from 10.0.1.2 to 10.0.1.254 of Subnet web`)

	pod := w.podOf(first)
	require.True(t, w.read(pod))
	require.NoError(t, w.Delete(w.ctx, first))
	w.end(pod)
	w.bind(second, "node-1", "")
	until(w, "has the address", second, func(c *ctrv1.Container) bool { return c.Status.Address == "10.0.1.77" })
}

// later moves the controllers' clock a minute, and makes them look at it by a change of the Container.
func (w *tenant) later(c *ctrv1.Container) {
	w.t.Helper()
	ahead.Store(int64(time.Minute))
	w.t.Cleanup(func() { ahead.Store(0) })
	before := c.DeepCopy()
	c.Labels = map[string]string{"look": "now"}
	require.NoError(w.t, w.Patch(w.ctx, c, client.MergeFrom(before)))
}

func TestAChangedSpecReplacesThePod(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	c := w.container("web-0", "web")
	pod := w.bind(c, "node-1", "")
	w.untilPhase(c, status.Ready)
	address := c.Status.Address

	before := c.DeepCopy()
	c.Spec.Env = []ctrv1.EnvVar{{Name: "COLOUR", Value: "blue"}}
	require.NoError(t, w.Patch(w.ctx, c, client.MergeFrom(before)))
	w.end(pod)
	again := w.bind(c, "node-1", pod.UID)
	require.Contains(t, again.Spec.Containers[0].Env, corev1.EnvVar{Name: "COLOUR", Value: "blue"})
	until(w, "is ready again", c, func(c *ctrv1.Container) bool {
		return c.Status.ObservedGeneration == c.Generation && c.Status.Phase == status.Ready
	})
	require.Equal(t, address, c.Status.Address)
}

func TestAContainerWaitsForItsSubnetAndStartsAtOnceWhenItComes(t *testing.T) {
	w, other := newTenant(t), newTenant(t)
	startControllers(t)
	other.subnet("web", "10.0.1.0/24")
	c := w.container("web-0", "web")
	require.Contains(t, w.untilReason(c, "SubnetNotFound"), `spec.subnet names Subnet "web", which does not exist in this namespace`, "another tenant's does not count")
	require.Equal(t, status.Pending, c.Status.Phase)
	require.Empty(t, c.Finalizers)
	require.False(t, w.read(w.podOf(c)), "nothing half-made")

	waiting := &vpcv1.Subnet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "later"}, Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.0.9.0/24"}}
	require.NoError(t, w.Create(w.ctx, waiting))
	late := w.container("late", "later")
	require.Contains(t, w.untilReason(late, "SubnetNotReady"), "not ready yet")

	begin := time.Now()
	w.subnet("web", "10.0.1.0/24")
	w.bind(c, "node-1", "")
	w.untilPhase(c, status.Ready)
	require.Less(t, time.Since(begin), 5*time.Second)
}

func TestAFullSubnetIsToldAndTheNextOneInLineGetsTheAddressThatBecomesFree(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("tiny", "10.0.1.0/29") // .1 is the gateway's; .2 to .6
	var full, fine []*ctrv1.Container
	for i := range 7 {
		c := w.container(fmt.Sprintf("c-%d", i), "tiny")
		until(w, "is decided", c, func(c *ctrv1.Container) bool { return c.Status.Address != "" || c.Status.Phase == status.Pending })
		if c.Status.Address == "" {
			full = append(full, c)
		} else {
			fine = append(fine, c)
		}
	}
	require.Len(t, fine, 5)
	require.Len(t, full, 2)
	message := w.untilReason(full[0], "AddressesExhausted")
	require.Contains(t, message, `spec.subnet: all addresses of Subnet "tiny" are in use; it starts when one is free: delete a Container`)
	require.Equal(t, status.Pending, full[0].Status.Phase, "it waits: nobody has to change it")
	require.False(t, w.read(w.podOf(full[0])), "no Pod is made that could not start")

	free := fine[0].Status.Address
	require.NoError(t, w.Delete(w.ctx, fine[0]))
	require.Eventually(t, func() bool {
		return (w.read(full[0]) && full[0].Status.Address == free) || (w.read(full[1]) && full[1].Status.Address == free)
	}, patience, 10*time.Millisecond)
}

func TestAContainerThatAsksForANodeThatDoesNotExistSaysSo(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	c := &ctrv1.Container{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "lost"},
		Spec:       ctrv1.ContainerSpec{Subnet: "web", Image: "whoami", Node: "nowhere"},
	}
	require.NoError(t, w.Create(w.ctx, c))
	require.Equal(t, `spec.node names node "nowhere", which does not exist; name another node, or none`, w.untilReason(c, "NodeNotFound"))
	require.Equal(t, status.Pending, c.Status.Phase)
}

func TestWhatThePodSaysIsInTheStatus(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	c := w.container("web-0", "web")
	pod := w.bind(c, "node-1", "")
	w.untilPhase(c, status.Ready)
	w.setStatus(pod, func(s *corev1.PodStatus) {
		s.ContainerStatuses[0].Ready, s.ContainerStatuses[0].RestartCount = false, 3
		s.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}
	})
	require.Contains(t, w.untilReason(c, "ImagePullFailed"), "spec.image registry.mni.internal/mni/whoami:latest cannot be pulled (not found)")
	require.Equal(t, status.Error, c.Status.Phase)
	require.EqualValues(t, 3, c.Status.Restarts)
}

func TestAPodOfSomebodyElseIsNotTaken(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	foreign := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web-0"},
		Spec:       corev1.PodSpec{HostNetwork: true, TerminationGracePeriodSeconds: ptr.To[int64](0), Containers: []corev1.Container{{Name: "x", Image: "x"}}},
	}
	require.NoError(t, w.Create(w.ctx, foreign))
	c := w.container("web-0", "web")
	require.Contains(t, w.untilReason(c, "NameTaken"), `a Pod named "web-0"`)
	require.NoError(t, w.Delete(w.ctx, c))
	w.untilGone(c)
	require.True(t, w.read(foreign))
	require.Nil(t, foreign.DeletionTimestamp)
}

func TestADeletedContainerGoesAfterItsPodAndItsAddress(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	c := w.container("web-0", "web")
	pod := w.bind(c, "node-1", "")
	w.untilPhase(c, status.Ready)
	nic := w.interfaceOf(c)

	require.NoError(t, w.Delete(w.ctx, c))
	require.Contains(t, w.untilReason(c, "Deleting"), "the Pod is ending on node node-1")
	require.Equal(t, status.Deleting, c.Status.Phase)
	require.True(t, w.read(nic))
	require.Nil(t, nic.DeletionTimestamp, "the address goes after the Pod that uses it")
	w.end(pod)
	w.untilGone(c)
	require.False(t, w.read(nic))
	require.False(t, w.read(pod))
}

func TestTheInterfaceOfAContainerThatVanishedIsCollected(t *testing.T) {
	w := newTenant(t)
	startNetwork(t)
	stop := runControllers(t, nil)
	w.subnet("web", "10.0.1.0/24")
	c := w.container("web-0", "web")
	nic := w.interfaceOf(c)
	until(w, "has an address", c, func(c *ctrv1.Container) bool { return c.Status.Address != "" })
	pod := w.podOf(c)
	until(w, "is made", pod, func(*corev1.Pod) bool { return true })
	stop()
	require.NoError(t, w.Delete(w.ctx, pod, client.GracePeriodSeconds(0)))
	require.NoError(t, w.Delete(w.ctx, c))
	require.True(t, w.read(c))
	before := c.DeepCopy()
	c.Finalizers = nil
	require.NoError(t, w.Patch(w.ctx, c, client.MergeFrom(before)))
	t.Cleanup(runControllers(t, nil))
	w.untilGone(nic)
}
