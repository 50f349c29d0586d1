package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

func TestAnInterfaceIsInTheGroupsThatItsContainerNames(t *testing.T) {
	w := running(t)
	require.Empty(t, interfaceGroups(w))
	w.container.Spec.SecurityGroups = []string{"web", "gone", "db"}
	w.groups = map[string]types.UID{"web": "u-web", "db": "u-db"}
	require.Equal(t, []string{"missing/gone", "u-db", "u-web"}, interfaceGroups(w))
	require.Equal(t, hold, decide(w).step, "the Pod stays when the groups change")

	result := withGroups(w, conditions.Ready("Running", ""))
	require.Equal(t, "SecurityGroupNotFound", result.Reason)
	require.Contains(t, result.Message, "namespace: gone;")
	require.Equal(t, "CrashLoop", withGroups(w, conditions.Failed("CrashLoop", "")).Reason, "what is worse is told first")
	w.groups["gone"] = "u-gone"
	require.True(t, withGroups(w, conditions.Ready("Running", "")).IsReady())
}

func TestAContainerThatComesToForwardGetsAnotherPodAndTheSameInterface(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	c := w.container("firewall", "web")
	pod := w.bind(c, "node-1", "")
	w.untilPhase(c, status.Ready)
	nic := w.interfaceOf(c)
	require.True(t, w.read(nic))
	require.True(t, *nic.Spec.SourceDestCheck)
	address := nic.Status.Address
	before := c.DeepCopy()
	c.Spec.SourceDestCheck = new(bool)
	require.NoError(t, w.Patch(w.ctx, c, client.MergeFrom(before)))
	until(w, "its interface does not check addresses", nic, func(n *netv1.NetworkInterface) bool { return !*n.Spec.SourceDestCheck })
	w.end(pod)
	w.bind(c, "node-1", pod.UID) // only a new network namespace forwards
	w.untilPhase(c, status.Ready)
	require.Equal(t, address, c.Status.Address)
}

func TestAContainersGroupsCanBeChangedWhileItRuns(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.subnet("web", "10.0.1.0/24")
	group := func(name string) *vpcv1.SecurityGroup {
		g := &vpcv1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
		require.NoError(t, w.Create(w.ctx, g))
		return g
	}
	web := group("web")
	c := w.container("web-0", "web")
	pod := w.bind(c, "node-1", "")
	w.untilPhase(c, status.Ready)
	nic := w.interfaceOf(c)
	set := func(groups ...string) {
		require.True(t, w.read(c))
		before := c.DeepCopy()
		c.Spec.SecurityGroups = groups
		require.NoError(t, w.Patch(w.ctx, c, client.MergeFrom(before)))
	}
	in := func(names ...string) {
		until(w, "is in its groups", nic, func(n *netv1.NetworkInterface) bool {
			if len(n.Spec.SecurityGroups) != len(names) {
				return false
			}
			for i := range names {
				if n.Spec.SecurityGroups[i] != names[i] {
					return false
				}
			}
			return true
		})
	}
	set("web")
	in(string(web.UID))
	set("later")
	in("missing/later")
	require.Contains(t, w.untilReason(c, "SecurityGroupNotFound"), "later")
	later := group("later")
	in(string(later.UID))
	w.untilPhase(c, status.Ready)
	set()
	in()
	same := w.podOf(c)
	require.True(t, w.read(same))
	require.Equal(t, pod.UID, same.UID, "the Pod was not made anew")
}
