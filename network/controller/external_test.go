package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/routing"
)

// externalPool makes an AddressPool and waits until its ranges are its own.
func (w *world) externalPool(name string, cidrs ...string) {
	w.t.Helper()
	pool := &netv1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.AddressPoolSpec{CIDRs: cidrs}}
	w.make(pool)
	w.eventually("pool "+name+" has its ranges", func() bool {
		w.get(name, pool)
		return len(pool.Status.CIDRs) == len(cidrs)
	})
}

func newExternalIP(name, pool, address string) *netv1.ExternalIP {
	return &netv1.ExternalIP{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.ExternalIPSpec{Pool: pool, Address: address}}
}

func newFloatingIP(name, eip, nic string) *netv1.FloatingIP {
	return &netv1.FloatingIP{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.FloatingIPSpec{ExternalIP: eip, NetworkInterface: nic}}
}

func newGateway(name, vpc string, eips []string, subnets ...string) *netv1.NATGateway {
	return &netv1.NATGateway{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.NATGatewaySpec{VPC: vpc, ExternalIPs: eips, Subnets: subnets}}
}

// interfaceOn makes a retained interface of a Subnet, on a node.
func (w *world) interfaceOn(name, namespace, subnet, node string) *netv1.NetworkInterface {
	w.t.Helper()
	nic := &netv1.NetworkInterface{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.NetworkInterfaceSpec{Subnet: subnet, Namespace: namespace, Retain: true, Node: node}}
	w.make(nic)
	w.eventually("interface "+name+" has an address", func() bool { return w.nic(name).Status.Address != "" })
	return w.nic(name)
}

// says waits until the object's Ready condition has a message.
func says[T client.Object](w *world, o T, message string, ready func(T) []metav1.Condition) {
	w.t.Helper()
	w.eventually(o.GetName()+" says: "+message, func() bool {
		w.get(o.GetName(), o)
		return strings.Contains(conditions.Message(ready(o)), message)
	})
}

func (w *world) eipSays(name, message string) *netv1.ExternalIP {
	w.t.Helper()
	o := newExternalIP(name, "", "")
	says(w, o, message, func(o *netv1.ExternalIP) []metav1.Condition { return o.Status.Conditions })
	return o
}

func (w *world) fipSays(name, message string) *netv1.FloatingIP {
	w.t.Helper()
	o := newFloatingIP(name, "", "")
	says(w, o, message, func(o *netv1.FloatingIP) []metav1.Condition { return o.Status.Conditions })
	return o
}

func (w *world) natSays(name, message string) *netv1.NATGateway {
	w.t.Helper()
	o := newGateway(name, "", nil)
	says(w, o, message, func(o *netv1.NATGateway) []metav1.Condition { return o.Status.Conditions })
	return o
}

func (w *world) absent(o client.Object) {
	w.t.Helper()
	w.eventually(o.GetName()+" is gone", func() bool {
		return client.IgnoreNotFound(w.Get(w.ctx, client.ObjectKeyFromObject(o), o)) == nil && w.Get(w.ctx, client.ObjectKeyFromObject(o), o) != nil
	})
}

const (
	eipReady = "the ExternalIP has its address"
	fipReady = "the external address leads to the interface"
	natReady = "every node with workloads of them translates"
)

func TestAnExternalIPHasAnAddressOfItsPoolThatNobodyElseHas(t *testing.T) {
	w := newWorld(t)
	w.make(newExternalIP("early", "pub", ""))
	w.eipSays("early", "spec.pool: AddressPool pub does not exist")
	w.externalPool("pub", "203.0.113.4/31", "198.51.100.7/32")
	early := w.eipSays("early", eipReady)
	require.Equal(t, "pub", early.Status.Pool)
	w.make(newExternalIP("second", "pub", ""), newExternalIP("third", "pub", ""))
	second, third := w.eipSays("second", eipReady), w.eipSays("third", eipReady)
	require.ElementsMatch(t, []string{"203.0.113.4", "203.0.113.5", "198.51.100.7"}, []string{early.Status.Address, second.Status.Address, third.Status.Address},
		"every address of a range is given, and none twice")
	w.make(newExternalIP("wants", "pub", third.Status.Address), newExternalIP("outside", "pub", "203.0.113.9"), newExternalIP("late", "pub", ""))
	w.eipSays("wants", "spec.address: "+third.Status.Address+" of AddressPool pub is another ExternalIP's; make a new ExternalIP")
	w.eipSays("outside", "spec.address: 203.0.113.9 is not in AddressPool pub (203.0.113.4/31, 198.51.100.7/32); make a new ExternalIP")
	w.eipSays("late", "all 3 addresses of AddressPool pub are in use")
	w.remove(newExternalIP("late", "", ""))
	w.remove(newExternalIP("third", "", ""))
	require.Equal(t, third.Status.Address, w.eipSays("wants", eipReady).Status.Address, "it is had again after its quarantine")
}

// https://github.com/metallb/metallb/issues/1774: an address that was given back is nobody's until nodes have let go.
func TestAReleasedExternalAddressIsNobodysForItsQuarantine(t *testing.T) {
	w := idleWorld(t)
	w.config.Quarantine = 3 * time.Second
	w.start()
	w.externalPool("pub", "203.0.113.4/32")
	w.make(newExternalIP("first", "pub", ""))
	w.eipSays("first", eipReady)
	w.remove(newExternalIP("first", "", ""))
	w.absent(newExternalIP("first", "", ""))
	released := time.Now()
	w.make(newExternalIP("second", "pub", "203.0.113.4"))
	w.eipSays("second", "spec.address: 203.0.113.4 of AddressPool pub was given back just now")
	w.eipSays("second", eipReady)
	require.Greater(t, time.Since(released), w.config.Quarantine-time.Second)
}

func TestAFloatingIPFollowsItsInterfaceAndIsWithdrawnBeforeItsAddressIsReleased(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	subnet := w.network(ns, "net-a", "10.0.1.0/24")
	w.externalPool("pub", "203.0.113.0/28")
	w.make(newFloatingIP("f", "e", "nic-1"))
	w.fipSays("f", "spec.externalIP: ExternalIP e does not exist yet; create it")
	w.make(newExternalIP("e", "pub", "203.0.113.5"))
	w.fipSays("f", "spec.networkInterface: NetworkInterface nic-1 does not exist yet")
	require.Equal(t, &netv1.ExternalIPUser{Kind: "FloatingIP", Name: "f"}, w.eipSays("e", eipReady).Status.UsedBy)
	one := w.interfaceOn("nic-1", ns, "net-a", "node-1")
	f := w.fipSays("f", fipReady)
	require.Equal(t, binding{"203.0.113.5", subnet.Status.VPCID, subnet.Status.VNI, one.Status.Address, "node-1"}, bindingOf(f))
	_, out := routing.Outward(subnet, nil, nil, []netv1.FloatingIP{*f})
	require.True(t, out, "the Subnet has a way out with it")

	// It follows to another node, and to none.
	move := func(node string) {
		nic := w.nic("nic-1")
		base := nic.DeepCopy()
		nic.Spec.Node = node
		require.NoError(t, w.Patch(w.ctx, nic, client.MergeFrom(base)))
	}
	move("node-2")
	w.eventually("it is on the other node", func() bool { w.get("f", f); return f.Status.Node == "node-2" })
	move("")
	require.Equal(t, binding{"203.0.113.5", subnet.Status.VPCID, subnet.Status.VNI, one.Status.Address, ""}, bindingOf(w.fipSays("f", "is attached on no node")))

	// To another interface.
	two := w.interfaceOn("nic-2", ns, "net-a", "node-2")
	base := f.DeepCopy()
	f.Spec.NetworkInterface = "nic-2"
	require.NoError(t, w.Patch(w.ctx, f, client.MergeFrom(base)))
	require.Equal(t, two.Status.Address, w.fipSays("f", fipReady).Status.Address)

	// The interface goes: nothing of it stays.
	w.remove(two)
	require.Equal(t, binding{}, bindingOf(w.fipSays("f", "spec.networkInterface: NetworkInterface nic-2 ")))

	// In use the address stays the ExternalIP's.
	w.remove(newExternalIP("e", "", ""))
	w.eipSays("e", "the ExternalIP goes when FloatingIP f has given 203.0.113.5 back; delete that one")
	w.remove(newFloatingIP("f", "", ""))
	w.absent(newFloatingIP("f", "", ""))
	w.absent(newExternalIP("e", "", ""))
}

// What is deleted counts as a user no more. https://github.com/kubeovn/kube-ovn/issues/6982
func TestOneFloatingIPHasAnExternalIPAndAnInterfaceAtATime(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "net-b", "10.0.1.0/24")
	w.externalPool("pub", "203.0.113.0/28")
	w.interfaceOn("nic-1", ns, "net-b", "node-1")
	w.interfaceOn("nic-2", ns, "net-b", "node-1")
	w.make(newExternalIP("e1", "pub", ""), newExternalIP("e2", "pub", ""), newFloatingIP("first", "e1", "nic-1"))
	w.fipSays("first", fipReady)
	w.make(newFloatingIP("same-address", "e1", "nic-2"), newFloatingIP("same-interface", "e2", "nic-1"))
	require.Equal(t, binding{}, bindingOf(w.fipSays("same-address", "spec.externalIP: ExternalIP e1 is FloatingIP first's; this FloatingIP waits until that one is deleted")))
	require.Equal(t, binding{}, bindingOf(w.fipSays("same-interface", "spec.networkInterface: NetworkInterface nic-1 is FloatingIP first's")))
	w.make(newFloatingIP("default", "e2", "nic-1"))
	w.fipSays("default", "spec.externalIP: ExternalIP e2 is FloatingIP same-interface's")
	w.restart()
	w.fipSays("first", fipReady)
	w.remove(newFloatingIP("first", "", ""))
	w.fipSays("same-address", fipReady)
	w.fipSays("same-interface", fipReady)
}

// Deleting a FloatingIP told that an address which was never there is Ready. https://github.com/kubeovn/kube-ovn/issues/5114
func TestAFloatingIPThatGoesMakesNoExternalIPReady(t *testing.T) {
	w := newWorld(t)
	f := newFloatingIP("f", "e", "")
	w.make(newExternalIP("e", "none", ""), f)
	w.eipSays("e", "spec.pool: AddressPool none does not exist")
	w.fipSays("f", "spec.externalIP: ExternalIP e has no address yet")
	w.remove(f)
	w.absent(f)
	e := w.eipSays("e", "spec.pool: AddressPool none does not exist")
	require.False(t, conditions.IsReady(e.Status.Conditions, e.Generation))
	require.Empty(t, e.Status.Address)
	w.externalPool("none", "203.0.113.4/32")
	w.eipSays("e", eipReady)
}

// One that was deleted right after it had been made leaked what had been made for it: its finalizer came too late.
// https://github.com/kubeovn/kube-ovn/issues/5115
func TestAFloatingIPThatIsDeletedAtOnceLeavesNothingBehind(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "net-d", "10.0.1.0/24")
	w.externalPool("pub", "203.0.113.0/28")
	w.interfaceOn("nic-1", ns, "net-d", "node-1")
	w.make(newExternalIP("e", "pub", ""))
	w.eipSays("e", eipReady)
	for i := range 20 {
		f := newFloatingIP("f", "e", "nic-1")
		w.make(f)
		if i%2 == 0 { // at the moment at which it has got the address
			w.eventually("it is the ExternalIP's", func() bool {
				e := newExternalIP("e", "", "")
				w.get("e", e)
				return e.Status.UsedBy != nil
			})
		}
		w.remove(f)
		w.absent(f)
	}
	w.make(newFloatingIP("other", "e", "nic-1"))
	w.fipSays("other", fipReady)
}

func TestAnOlderFloatingIPGetsTheInterfaceThatAYoungerOneReachedFirst(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "net-o", "10.0.1.0/24")
	w.externalPool("pub", "203.0.113.0/28")
	w.interfaceOn("nic-1", ns, "net-o", "node-1")
	w.interfaceOn("nic-2", ns, "net-o", "node-1")
	older := newFloatingIP("older", "e1", "nic-1")
	w.make(newExternalIP("e1", "pub", ""), newExternalIP("e2", "pub", ""), older)
	w.fipSays("older", fipReady)
	require.Eventually(t, func() bool { return time.Since(older.CreationTimestamp.Time) > time.Second }, 5*time.Second, 50*time.Millisecond)
	w.make(newFloatingIP("younger", "e2", "nic-2"))
	w.fipSays("younger", fipReady)
	require.NoError(t, w.Get(w.ctx, client.ObjectKeyFromObject(older), older))
	older.Spec.NetworkInterface = "nic-2"
	require.NoError(t, w.Update(w.ctx, older))
	w.fipSays("younger", "spec.networkInterface: NetworkInterface nic-2 is FloatingIP older's")
	require.NotEqual(t, binding{}, bindingOf(w.fipSays("older", fipReady)))
	w.remove(newFloatingIP("older", "", ""))
	w.fipSays("younger", fipReady)
}

func TestOfManyFloatingIPsOfOneInterfaceMadeAtOnceExactlyOneHasIt(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	w.network(ns, "net-c", "10.0.1.0/24")
	w.externalPool("pub", "203.0.113.0/28")
	w.interfaceOn("nic-1", ns, "net-c", "node-1")
	names := []string{"a", "b", "c", "d", "e"}
	for _, n := range names {
		w.make(newExternalIP(n, "pub", ""), newFloatingIP(n, n, "nic-1"))
	}
	for range names {
		var bound []string
		w.eventually("one is bound, and the others say so", func() bool {
			var list netv1.FloatingIPList
			require.NoError(t, w.List(w.ctx, &list))
			bound = nil
			waiting := 0
			for i := range list.Items {
				if list.Items[i].Status.Address != "" {
					bound = append(bound, list.Items[i].Name)
				} else if strings.Contains(conditions.Message(list.Items[i].Status.Conditions), "NetworkInterface nic-1 is FloatingIP ") {
					waiting++
				}
			}
			require.LessOrEqual(t, len(bound), 1)
			return len(bound) == 1 && waiting == len(list.Items)-1
		})
		w.remove(newFloatingIP(bound[0], "", ""))
		w.absent(newFloatingIP(bound[0], "", ""))
	}
}

func TestAFloatingIPToAnOrdinaryPodsInterfaceIsRefused(t *testing.T) {
	w := newWorld(t)
	w.externalPool("pub", "203.0.113.0/28")
	w.interfaceOn("nic-1", w.namespace(), netv1.DefaultSubnet, "node-1")
	w.make(newExternalIP("e", "pub", ""), newFloatingIP("f", "e", "nic-1"))
	require.Equal(t, binding{}, bindingOf(w.fipSays("f", "NetworkInterface nic-1 is in the default Subnet, whose Pods have no external addresses")))
}

func TestASubnetIsServedByOneNATGatewayAndTheRouteOutGoesWithTheLast(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	app := w.network(ns, "main", "10.0.1.0/24")
	w.externalPool("pub", "203.0.113.0/28")
	w.make(newSubnet("db", "main", "10.0.2.0/24"), newExternalIP("e1", "pub", "203.0.113.1"), newExternalIP("e2", "pub", "203.0.113.2"), newExternalIP("e3", "pub", ""))
	out := func(has bool) {
		t.Helper()
		w.eventually("the route out", func() bool {
			var list netv1.NATGatewayList
			require.NoError(t, w.List(w.ctx, &list))
			_, ok := routing.Outward(app, nil, list.Items, nil)
			return ok == has
		})
	}
	out(false)
	w.make(newGateway("all", "main", []string{"e1"}))
	w.eventually("it serves all", func() bool {
		return strings.Join(w.natSays("all", natReady).Status.Subnets, " ") == "db main"
	})
	require.Equal(t, []string{"203.0.113.1"}, w.natSays("all", natReady).Status.Addresses)
	out(true)

	// One that names a Subnet has it before one that names none.
	w.make(newGateway("named", "main", []string{"e2"}, "main"))
	w.eventually("it serves what it names", func() bool {
		return strings.Join(w.natSays("named", natReady).Status.Subnets, " ") == "main"
	})
	require.Equal(t, []string{"db"}, w.natSays("all", natReady).Status.Subnets)
	w.make(newGateway("late", "main", []string{"e3", "e2"}, "main", "none"))
	w.eventually("the third has an address that nobody has", func() bool {
		return len(w.natSays("late", "spec.externalIPs[1]: ExternalIP e2 is NATGateway named's; this NATGateway waits until that one is deleted").Status.Addresses) == 1
	})
	late := w.natSays("late", "e2")
	require.Empty(t, late.Status.Subnets)
	late.Spec.ExternalIPs = []string{"e3"}
	require.NoError(t, w.Update(w.ctx, late))
	w.natSays("late", "spec.subnets: these Subnets do not exist yet: none")
	w.get("late", late)
	late.Spec.Subnets = []string{"main"}
	require.NoError(t, w.Update(w.ctx, late))
	w.natSays("late", "served are Subnet main by NATGateway named; this one waits for them")
	w.get("late", late)
	late.Spec.Subnets = []string{"default"}
	require.NoError(t, w.Update(w.ctx, late))
	w.natSays("late", "spec.subnets: not Subnets of VPC main: default; name Subnets of that VPC")

	for _, name := range []string{"named", "late"} {
		w.remove(newGateway(name, "", nil))
		w.absent(newGateway(name, "", nil))
	}
	w.eventually("it serves all again", func() bool { return len(w.natSays("all", natReady).Status.Subnets) == 2 })
	out(true)
	w.remove(newGateway("all", "", nil))
	out(false)
}

func TestANATGatewayAndItsAddressesGoWhenNodesHaveGivenTheirPortsBack(t *testing.T) {
	w := newWorld(t)
	w.network(w.namespace(), "main", "10.0.1.0/24")
	w.externalPool("pub", "203.0.113.0/28")
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	w.make(node("live"), node("lost"))
	t.Cleanup(func() { w.remove(node("live")); w.remove(node("lost")) })
	w.make(newExternalIP("e", "pub", "203.0.113.3"), newExternalIP("other", "pub", "203.0.113.4"), newGateway("g", "main", []string{"e"}))
	w.natSays("g", natReady)
	block := func(name, node string, first int32) *netv1.PortBlock {
		return &netv1.PortBlock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.PortBlockSpec{
			Address: "203.0.113.3", FirstPort: first, Size: netv1.PortBlockSize, Node: node, NATGateway: "g",
		}}
	}
	w.make(block("203.0.113.3.1024", "live", 1024), block("203.0.113.3.1536", "lost", 1536))

	// An address that the gateway gives up stays its until its ports are back.
	g := w.natSays("g", natReady)
	g.Spec.ExternalIPs = []string{"other"}
	require.NoError(t, w.Update(w.ctx, g))
	w.eventually("the gateway has the other address", func() bool {
		return strings.Join(w.natSays("g", natReady).Status.Addresses, "") == "203.0.113.4"
	})
	w.make(newFloatingIP("f", "e", ""))
	w.fipSays("f", "spec.externalIP: ExternalIP e is NATGateway g's")

	w.remove(newGateway("g", "", nil))
	g = w.natSays("g", "the NATGateway goes when these nodes have given their PortBlocks back: live, lost")
	require.Empty(t, g.Status.Subnets)
	w.remove(node("lost"))
	w.natSays("g", "given their PortBlocks back: live")
	w.absent(block("203.0.113.3.1536", "", 0))
	w.remove(block("203.0.113.3.1024", "", 0))
	w.absent(newGateway("g", "", nil))
	w.fipSays("f", "spec.networkInterface names no interface; what is sent to 203.0.113.3 drops until it does")
}
