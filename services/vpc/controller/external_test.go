package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend/netbackend"
)

// pool makes an AddressPool that goes when the test ends.
func (w *tenant) pool(name string, cidrs ...string) {
	w.t.Helper()
	pool := &netv1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.AddressPoolSpec{CIDRs: cidrs}}
	require.NoError(w.t, w.Create(w.ctx, pool))
	w.t.Cleanup(func() { require.NoError(w.t, client.IgnoreNotFound(w.Delete(w.ctx, pool))) })
}

func (w *tenant) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name}
}

func (w *tenant) externalIP(name, class, address string) *vpcv1.ExternalIP {
	w.t.Helper()
	eip := &vpcv1.ExternalIP{ObjectMeta: w.meta(name), Spec: vpcv1.ExternalIPSpec{ClassName: class, Address: address}}
	require.NoError(w.t, w.Create(w.ctx, eip))
	return eip
}

func (w *tenant) floatingIP(name, eip, target string) *vpcv1.FloatingIP {
	w.t.Helper()
	kind, workload, _ := strings.Cut(target, "/")
	fip := &vpcv1.FloatingIP{ObjectMeta: w.meta(name), Spec: vpcv1.FloatingIPSpec{
		ExternalIP: eip, Target: vpcv1.FloatingIPTarget{Type: vpcv1.FloatingIPTargetType(kind), Name: workload},
	}}
	require.NoError(w.t, w.Create(w.ctx, fip))
	return fip
}

func (w *tenant) gateway(name, vpc string, eips []string, subnets ...string) *vpcv1.NATGateway {
	w.t.Helper()
	nat := &vpcv1.NATGateway{ObjectMeta: w.meta(name), Spec: vpcv1.NATGatewaySpec{VPC: vpc, ExternalIPs: eips, Subnets: subnets}}
	require.NoError(w.t, w.Create(w.ctx, nat))
	return nat
}

// on puts a workload's interface on a node.
func (w *tenant) on(nic *netv1.NetworkInterface, node string) {
	w.t.Helper()
	w.read(nic)
	base := nic.DeepCopy()
	nic.Spec.Node = node
	require.NoError(w.t, w.Patch(w.ctx, nic, client.MergeFrom(base)))
}

// later waits until what is made next is younger than an object; ages have seconds.
func later(w *tenant, o client.Object) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return time.Since(o.GetCreationTimestamp().Time) > time.Second }, 5*time.Second, 50*time.Millisecond)
}

func TestAFloatingIPLeadsToAContainerAndFollowsIt(t *testing.T) {
	w, other := newTenant(t), newTenant(t)
	startControllers(t)
	w.pool("default", "203.0.113.0/28")
	w.pool("gold", "198.51.100.0/28")
	w.vpc("main", "10.0.0.0/16")
	subnet := w.subnet("front", "main", "10.0.1.0/24")
	w.untilReady(subnet)

	fip := w.floatingIP("web", "web", "containers/web")
	require.Equal(t, `spec.externalIP names ExternalIP "web", which does not exist in this namespace; create it, or make a new FloatingIP that names another`,
		w.untilReason(fip, "ExternalIPNotFound"))
	other.untilReady(other.externalIP("web", "", ""))
	eip := w.externalIP("web", "gold", "198.51.100.7")
	w.untilReady(eip)
	require.Equal(t, "198.51.100.7", eip.Status.Address)
	require.Equal(t, "spec.target: Container web does not exist; create it, or name another", w.untilReason(fip, "TargetNotFound"))
	require.Equal(t, status.Pending, fip.Status.Phase)
	until(w, "its user is told", eip, func(o *vpcv1.ExternalIP) bool {
		return o.Status.UsedBy != nil && *o.Status.UsedBy == vpcv1.ExternalIPUser{Kind: "FloatingIP", Name: "web"}
	})
	nic := w.containerIn(subnet, "web", true)
	until(w, "it waits for the Container's Pod", fip, func(o *vpcv1.FloatingIP) bool {
		return readyOf(o).Message == "spec.target: Container web is attached on no node; what is sent to 198.51.100.7 drops until it is"
	})
	w.on(nic, "node-1")
	w.untilReady(fip)
	require.Equal(t, []string{"198.51.100.7", nic.Status.Address}, []string{fip.Status.ExternalAddress, fip.Status.Address})

	// A second one of the same ExternalIP, and of the same Container.
	second := w.floatingIP("second", "web", "containers/web")
	require.Equal(t, "spec.externalIP: ExternalIP web is FloatingIP web's; this FloatingIP waits until that one is deleted", w.untilReason(second, "ExternalIPInUse"))
	w.externalIP("spare", "", "")
	projected := &netv1.FloatingIP{} // it, and not the tenant's, is what ages are told by
	require.NoError(t, w.Get(w.ctx, client.ObjectKey{Name: string(fip.UID)}, projected))
	later(w, projected)
	third := w.floatingIP("third", "spare", "containers/web")
	require.Contains(t, w.untilReason(third, "InterfaceInUse"), "spec.target: Container web is FloatingIP web's; this one waits")

	// The Container is made anew, with another address.
	require.NoError(t, w.Delete(w.ctx, nic))
	w.untilGone(nic)
	again := w.containerIn(subnet, "web", true)
	w.on(again, "node-2")
	until(w, "it follows", fip, func(o *vpcv1.FloatingIP) bool {
		return o.Status.Address == again.Status.Address && o.Status.Phase == status.Ready
	})

	// Another target, in one step.
	machine := &netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: map[string]string{netbackend.LabelVirtualMachine: "vm"}},
		Spec:       netv1.NetworkInterfaceSpec{Subnet: string(subnet.UID), Namespace: w.namespace, Retain: true, Node: "node-1"},
	}
	fip.Spec.Target = vpcv1.FloatingIPTarget{Type: vpcv1.TargetVirtualMachines, Name: "vm"}
	require.NoError(t, w.Update(w.ctx, fip))
	require.Contains(t, w.untilReason(fip, "TargetNotFound"), "spec.target: VirtualMachine vm does not exist, as there is no service of virtual machines yet; the FloatingIP waits for it")
	w.untilReady(third)
	require.NoError(t, w.Create(w.ctx, machine))
	w.untilReady(fip)

	// An ExternalIP in use stays.
	require.NoError(t, w.Delete(w.ctx, eip))
	require.Equal(t, "the ExternalIP goes when FloatingIP web, which has its address, is deleted or gives it back", w.untilReason(eip, "InUse"))
	for _, o := range []client.Object{fip, second, third} {
		require.NoError(t, w.Delete(w.ctx, o))
		w.untilGone(o)
	}
	w.untilGone(eip)
	require.False(t, w.read(named(&netv1.ExternalIP{}, string(eip.UID))))
	require.NoError(t, w.Delete(w.ctx, machine))
}

func TestAnExternalIPOfAClassThatIsNotThereSaysSo(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.pool("small", "192.168.77.9/32")
	eip := w.externalIP("e", "platinum", "")
	require.Equal(t, "spec.className: there is no pool platinum; make a new ExternalIP that names another", w.untilReason(eip, "AddressPoolNotFound"))
	outside := w.externalIP("outside", "small", "192.168.77.10")
	require.Equal(t, "spec.address: 192.168.77.10 is not in pool small (192.168.77.9/32); make a new ExternalIP that asks for one of its addresses, or for none",
		w.untilReason(outside, "AddressInvalid"))
	require.Equal(t, status.Error, outside.Status.Phase)
	w.untilReady(w.externalIP("first", "small", ""))
	require.Contains(t, w.untilReason(w.externalIP("second", "small", ""), "AddressesExhausted"), "all 1 addresses of pool small are in use")
	foreign := newTenant(t).externalIP("asks", "small", "192.168.77.9")
	until(w, "it is another's", foreign, func(o *vpcv1.ExternalIP) bool { return o.Status.Phase == status.Error })
	require.NotContains(t, readyOf(foreign).Message, w.namespace)
	require.Contains(t, readyOf(foreign).Message, "is another ExternalIP's")
	for _, o := range []string{"e", "outside", "first", "second"} {
		require.NoError(t, w.Delete(w.ctx, &vpcv1.ExternalIP{ObjectMeta: w.meta(o)}))
	}
	require.NoError(t, w.Delete(w.ctx, foreign))
	w.untilGone(&vpcv1.ExternalIP{ObjectMeta: w.meta("first")})
}

func TestANATGatewayServesSubnetsOfItsVpc(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.pool("default", "203.0.113.0/28")
	nat := w.gateway("out", "main", []string{"one", "two"}, "app", "late")
	require.Contains(t, w.untilReason(nat, "VpcNotFound"), `spec.vpc names Vpc "main", which does not exist in this namespace`)
	w.vpc("main", "10.0.0.0/16")
	w.untilReady(w.subnet("app", "main", "10.0.1.0/24"))
	require.Equal(t, "spec.externalIPs[0]: ExternalIP one does not exist yet; create it; spec.externalIPs[1]: ExternalIP two does not exist yet; create it",
		w.untilReason(nat, "ExternalIPNotFound"))
	one, two := w.externalIP("one", "", ""), w.externalIP("two", "", "")
	w.untilReady(one, two)
	require.Equal(t, "spec.subnets: these Subnets do not exist yet: late; create them, or name others", w.untilReason(nat, "SubnetNotFound"))
	require.Equal(t, []string{"app"}, nat.Status.Subnets)
	w.untilReady(w.subnet("late", "main", "10.0.2.0/24"))
	w.untilReady(nat)
	require.Equal(t, []string{"app", "late"}, nat.Status.Subnets)
	require.Equal(t, []string{one.Status.Address, two.Status.Address}, nat.Status.Addresses)

	w.externalIP("three", "", "")
	second := w.gateway("second", "main", []string{"three"}, "app")
	require.Contains(t, w.untilReason(second, "SubnetServed"), "served are Subnet app by NATGateway out; this one waits for them")
	until(w, "it says what uses it", one, func(o *vpcv1.ExternalIP) bool {
		return o.Status.UsedBy != nil && *o.Status.UsedBy == vpcv1.ExternalIPUser{Kind: "NATGateway", Name: "out"}
	})
	require.NoError(t, w.Delete(w.ctx, nat))
	w.untilGone(nat)
	w.untilReady(second)
	require.NoError(t, w.Delete(w.ctx, second))
	w.untilGone(second)
}

func TestAsPrintedInTheAnnouncementAFloatingIPIsAccepted(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.pool("default", "203.0.113.0/28")
	var fip vpcv1.FloatingIP
	require.NoError(t, yaml.UnmarshalStrict([]byte(`
apiVersion: vpc.mnicloud.jp/v1alpha1
kind: FloatingIP
metadata:
  name: my-fip
  namespace: tenant-a
spec:
  externalIP: my-eip
  target:
    type: virtualMachines
    name: my-vm
`), &fip))
	fip.Namespace = w.namespace
	require.NoError(t, w.Create(w.ctx, &fip))
	var eip vpcv1.ExternalIP
	require.NoError(t, yaml.UnmarshalStrict([]byte("apiVersion: vpc.mnicloud.jp/v1alpha1\nkind: ExternalIP\nmetadata: {name: my-eip}\n"), &eip))
	eip.Namespace = w.namespace
	require.NoError(t, w.Create(w.ctx, &eip))
	w.untilReady(&eip)
	require.Contains(t, w.untilReason(&fip, "TargetNotFound"), "VirtualMachine my-vm does not exist")
	require.NoError(t, w.Delete(w.ctx, &eip))
	require.NoError(t, w.Delete(w.ctx, &fip))
	w.untilGone(&fip)
	w.untilGone(&eip)
}

// What is published hung when it was deleted. https://github.com/metallb/metallb/issues/1913
func TestExternalObjectsGoInAnyOrder(t *testing.T) {
	w := newTenant(t)
	startControllers(t)
	w.pool("default", "203.0.113.0/28")
	for _, order := range [][]int{{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {2, 0, 5, 3, 1, 4}, {4, 2, 3, 0, 5, 1}} {
		vpc, subnet := w.vpc("main", "10.0.0.0/16"), w.subnet("front", "main", "10.0.1.0/24")
		w.untilReady(subnet)
		nic := w.containerIn(subnet, "web", true)
		w.on(nic, "node-1")
		one, two := w.externalIP("one", "", ""), w.externalIP("two", "", "")
		fip, nat := w.floatingIP("f", "one", "containers/web"), w.gateway("n", "main", []string{"two"})
		w.untilReady(one, two, fip)
		w.untilReady(nat)
		all := []client.Object{vpc, subnet, one, two, fip, nat}
		require.NoError(t, w.Delete(w.ctx, nic))
		for _, i := range order {
			require.NoError(t, w.Delete(w.ctx, all[i]))
		}
		for _, o := range all {
			w.untilGone(o)
		}
		for _, o := range []client.Object{named(&netv1.ExternalIP{}, string(one.UID)), named(&netv1.FloatingIP{}, string(fip.UID)), named(&netv1.NATGateway{}, string(nat.UID))} {
			require.False(t, w.read(o), "%v %T", order, o)
		}
	}
}
