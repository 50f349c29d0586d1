package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// history is a random one: Pods, interfaces, Subnets and leases come and go while the controllers crash in the middle of
// writes and start again, and nodes' daemons, which die in the middle of writes too, claim interfaces beside them. At every moment no address is published twice; when all is quiet nothing is missing, stale or
// double.
type history struct {
	*world
	random     *rand.Rand
	namespaces []string
	pods       int
	// daemons are the nodes', by name; claimed is how many claims succeeded.
	daemons map[string]*daemon
	claimed int
	// published remembers each interface's address and MAC by its UID: they never change.
	published map[string]string
	// seen is who was last seen with each infrastructure address, and when.
	seen map[string]sighting
}

type sighting struct {
	holder string
	at     time.Time
}

// https://github.com/metallb/metallb/issues/1774 and
// https://github.com/metallb/metallb/issues/2479: after a restart two had one address.
//
// MODEL_STEPS makes one long history instead (`make soak`: 10,000 steps), MODEL_SEED repeats one.
func TestWhateverHappensNoAddressIsMissingStaleOrDouble(t *testing.T) {
	histories := map[uint64]int{1: 48, 2: 48}
	if steps, err := strconv.Atoi(os.Getenv("MODEL_STEPS")); err == nil {
		seed, err := strconv.ParseUint(os.Getenv("MODEL_SEED"), 10, 64)
		if err != nil {
			seed = uint64(time.Now().UnixNano())
		}
		histories = map[uint64]int{seed: steps}
	}
	for seed, steps := range histories {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			h := &history{
				world: idleWorld(t), random: rand.New(rand.NewPCG(seed, 0)), published: map[string]string{}, seen: map[string]sighting{},
			}
			h.namespaces = []string{h.namespace(), h.namespace()}
			h.daemons = map[string]*daemon{"node-1": h.daemonOf("node-1"), "node-2": h.daemonOf("node-2")}
			h.startWithCrash()
			for _, vpc := range []string{"a", "b"} {
				h.make(newVPC(vpc, h.namespaces[0]))
				h.restoreSubnets(vpc)
			}
			const round = 12
			for done := 0; done < steps; done += round {
				for range round {
					h.step()
					h.check()
				}
				h.stop()
				h.startWithCrash()
				if done%(25*round) == 24*round {
					h.settles() // now and then all must be well, or a fault early on would be buried
				}
			}
			h.settles()
			require.Positive(t, h.claimed, "the nodes had interfaces to give, too")
		})
	}
}

// settles lets the controllers live and waits until all is well.
func (h *history) settles() {
	h.t.Helper()
	h.stop()
	h.wrap = nil
	h.start()
	h.restoreSubnets("a")
	h.restoreSubnets("b")
	var wrong string
	if !h.until(func() bool { wrong = h.unsettled(); return wrong == "" }) {
		h.t.Fatalf("does not converge: %s\n%s", wrong, h.dump())
	}
	h.check()
}

// startWithCrash starts controllers that die at a write soon to come: before or after it.
func (h *history) startWithCrash() {
	at, how := 1+h.random.Int64N(25), before
	if h.random.IntN(2) == 0 {
		how = after
	}
	writes := &counting{crash: func(n int64) crash {
		switch {
		case n < at:
			return lives
		case n == at:
			return how
		}
		return before // the dead write nothing
	}}
	h.wrap = writes.around
	h.start()
}

// restoreSubnets makes the VPC's Subnets that are missing: a small one, one that overlaps with it, and one apart.
func (h *history) restoreSubnets(vpc string) {
	for name, cidr := range map[string]string{vpc + "-small": "10.0.0.0/29", vpc + "-overlap": "10.0.0.0/28", vpc + "-apart": "10.0.1.0/28"} {
		if h.subnet(name).UID == "" {
			h.make(newSubnet(name, vpc, cidr))
		}
	}
}

// replica makes a Pod of a StatefulSet, unless it is there.
func (h *history) replica(namespace, subnet string, number int) {
	pod := replica(namespace, types.UID("set-"+namespace), fmt.Sprintf("web-%d", number), netv1.AnnotationSubnet, subnet)
	if err := h.Create(h.ctx, pod); !apierrors.IsAlreadyExists(err) {
		require.NoError(h.t, err)
	}
}

func (h *history) one(of []string) string { return of[h.random.IntN(len(of))] }

// step does one thing that a user, a kubelet or an accident may do.
func (h *history) step() {
	subnets := []string{"a-small", "a-small", "a-apart", "b-small", "a-overlap", "default"}
	n := h.random.IntN(24)
	if n < 9 && len(h.allPods()) >= 40 {
		n = 9 // enough: one goes
	}
	switch {
	case n < 1:
		h.replica(h.one(h.namespaces), h.one(subnets), h.random.IntN(3))
	case n < 9:
		h.pods++
		annotations := []string{netv1.AnnotationSubnet, h.one(subnets)}
		if h.random.IntN(2) == 0 {
			annotations = append(annotations, netv1.AnnotationInterface, h.one([]string{"nic-0", "nic-1", "nic-2"}))
		}
		if h.random.IntN(4) == 0 {
			annotations = append(annotations, netv1.AnnotationAddress, h.one([]string{"10.0.0.4", "10.0.0.5", "10.0.1.4"}))
		}
		h.pod(h.one(h.namespaces), fmt.Sprintf("p%d", h.pods), annotations...)
	case n < 14:
		if pod := h.somePod(); pod != nil {
			h.deletePod(pod)
		}
	case n < 15:
		if pod := h.somePod(); pod != nil && !claim.Finished(pod) {
			h.finish(pod, corev1.PodSucceeded)
		}
	case n < 16:
		if pod := h.somePod(); pod != nil && pod.Spec.NodeName == "" {
			h.schedule(pod, h.one([]string{"node-1", "node-2"}))
		}
	case n < 17:
		h.remove(&netv1.NetworkInterface{ObjectMeta: metav1.ObjectMeta{Name: h.one([]string{"nic-0", "nic-1", "nic-2"})}})
	case n < 18:
		var list netv1.IPLeaseList
		require.NoError(h.t, h.List(h.ctx, &list))
		list.Items = slices.DeleteFunc(list.Items, func(l netv1.IPLease) bool { return l.Spec.ReleasedAt != nil }) // or no quarantine holds
		if len(list.Items) > 0 {
			h.remove(&list.Items[h.random.IntN(len(list.Items))])
		}
	case n < 19:
		h.remove(&netv1.Subnet{ObjectMeta: metav1.ObjectMeta{Name: h.one(subnets[:5])}})
	case n < 20:
		h.restoreSubnets(h.one([]string{"a", "b"}))
	default:
		if pod := h.somePod(); pod != nil {
			h.claim(pod)
		}
	}
}

// claim lets the Pod's node claim an interface for it, and maybe die at a write.
func (h *history) claim(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		h.schedule(pod, h.one([]string{"node-1", "node-2"}))
		require.NoError(h.t, h.Get(h.ctx, client.ObjectKeyFromObject(pod), pod))
	}
	d := h.daemons[pod.Spec.NodeName]
	at, how := d.writes.count()+1+h.random.Int64N(8), []crash{before, after}[h.random.IntN(2)]
	d.writes.crash = func(n int64) crash {
		if n == at {
			return how
		}
		return lives
	}
	if d.claim(pod) == nil {
		h.claimed++
	}
}

func (h *history) somePod() *corev1.Pod {
	pods := h.allPods()
	if len(pods) == 0 {
		return nil
	}
	return &pods[h.random.IntN(len(pods))]
}

func (h *history) allPods() []corev1.Pod {
	var out []corev1.Pod
	for _, ns := range h.namespaces {
		var list corev1.PodList
		require.NoError(h.t, h.List(h.ctx, &list, client.InNamespace(ns)))
		out = append(out, list.Items...)
	}
	return out
}

// check asserts what holds at every moment.
func (h *history) check() {
	h.t.Helper()
	var nics netv1.NetworkInterfaceList
	require.NoError(h.t, h.List(h.ctx, &nics))
	holders := map[string]string{}
	for _, nic := range nics.Items {
		if nic.Status.Address == "" || nic.Spec.Pod == nil && !nic.DeletionTimestamp.IsZero() {
			continue // no node has an entry of one without a Pod
		}
		for _, address := range []string{fmt.Sprintf("%d.%s", nic.Status.VNI, nic.Status.Address), "1." + nic.Status.InfrastructureAddress} {
			if other := holders[address]; other != "" && other != nic.Name {
				h.t.Fatalf("%s is published by %s and %s\n%s", address, other, nic.Name, h.dump())
			}
			holders[address] = nic.Name
		}
		h.quarantined(nic.Status.InfrastructureAddress, string(nic.UID))
		now := nic.Status.MAC + " " + nic.Status.Address
		if was, ok := h.published[string(nic.UID)]; ok {
			require.Equal(h.t, was, now, "NetworkInterface %s changed", nic.Name)
		}
		h.published[string(nic.UID)] = now
	}
	var subnets netv1.SubnetList
	require.NoError(h.t, h.List(h.ctx, &subnets))
	vnis := map[uint32]string{}
	for i := range subnets.Items {
		s := &subnets.Items[i]
		if standingOf(s) != confirmed {
			continue
		}
		require.Empty(h.t, vnis[s.Status.VNI], "VNI %d is double", s.Status.VNI)
		vnis[s.Status.VNI] = s.Name
		for j := range subnets.Items[:i] {
			other := &subnets.Items[j]
			if standingOf(other) == confirmed && other.Spec.VPC == s.Spec.VPC {
				require.False(h.t, meets(s, other), "Subnets %s and %s overlap and are both in use", s.Name, other.Name)
			}
		}
	}
}

// quarantined asserts that nobody has an infrastructure address soon after another had it.
func (h *history) quarantined(address, holder string) {
	h.t.Helper()
	last, now := h.seen[address], sighting{holder, time.Now()}
	if last.holder != "" && last.holder != holder && now.at.Sub(last.at) < h.config.Quarantine {
		h.t.Fatalf("%s was seen with %s and, %s later, with %s\n%s", address, last.holder, now.at.Sub(last.at), holder, h.dump())
	}
	h.seen[address] = now
}

// unsettled is what is not yet as it should be once nothing happens any more.
func (h *history) unsettled() string {
	var nics netv1.NetworkInterfaceList
	require.NoError(h.t, h.List(h.ctx, &nics))
	leases := h.leases()
	for i := range nics.Items {
		nic := &nics.Items[i]
		var want []string
		if nic.Status.Address != "" {
			want = append(want, fmt.Sprintf("%d.%s", nic.Status.VNI, nic.Status.Address))
			if nic.Spec.Subnet != netv1.DefaultSubnet {
				want = append(want, "1."+nic.Status.InfrastructureAddress)
			}
		}
		got := leases[string(nic.UID)]
		subnetGoes := readyOf(nic) != nil && readyOf(nic).Reason == claim.ReasonSubnetDeleting
		if nic.Status.Address == "" && (subnetGoes || !nic.DeletionTimestamp.IsZero()) {
			// It, or its Subnet, was to go between leases and status. The leases go with it: a node's daemon may be publishing them.
			delete(leases, string(nic.UID))
			continue
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			return fmt.Sprintf("NetworkInterface %s has leases %v, wants %v", nic.Name, got, want)
		}
		delete(leases, string(nic.UID))
	}
	if len(leases) > 0 {
		return fmt.Sprintf("stale leases: %v", slices.Collect(maps.Values(leases)))
	}
	for _, pod := range h.allPods() {
		if why := h.unserved(&pod); why != "" {
			return fmt.Sprintf("Pod %s/%s: %s", pod.Namespace, pod.Name, why)
		}
	}
	return ""
}

// unserved is why a Pod does not have what it should have.
func (h *history) unserved(pod *corev1.Pod) string {
	nic := h.nic(claim.InterfaceName(pod))
	has := nic.Spec.Pod != nil && nic.Spec.Pod.UID == pod.UID
	subnet := h.subnet(claim.SubnetName(pod))
	switch {
	case claim.Finished(pod):
		if has {
			return "has ended and still has its interface"
		}
		return ""
	case nic.UID != "" && !has:
		// Somebody else's: of another namespace or Subnet, or in use, or kept for an address that the Pod does not want.
		if no := h.refusal(pod, nic); no == "" {
			return "does not get its interface " + nic.Name
		}
		return ""
	case subnet.UID == "" || !subnet.DeletionTimestamp.IsZero() && !has:
		return ""
	case subnet.Name != netv1.DefaultSubnet && pod.Namespace != h.namespaces[0]:
		if nic.UID != "" {
			return "has an interface in a VPC that does not list its namespace"
		}
		return ""
	case claim.CheckAddress(pod, subnet) != nil && nic.UID == "":
		return ""
	case !has:
		return "has no interface"
	case nic.Spec.Node != pod.Spec.NodeName:
		return "its interface is on node " + nic.Spec.Node
	case nic.Status.Address == "" && h.isReady(nic):
		return "is Ready without an address"
	case nic.Status.Address != "" || standingOf(subnet) != confirmed || !nic.DeletionTimestamp.IsZero():
		return ""
	}
	return h.unallocated(nic, subnet)
}

// refusal is why the Pod may not have the interface.
func (h *history) refusal(pod *corev1.Pod, nic *netv1.NetworkInterface) string {
	alive := false
	for _, other := range h.allPods() {
		alive = alive || nic.Spec.Pod != nil && other.UID == nic.Spec.Pod.UID && !claim.Finished(&other)
	}
	if _, no := claim.DecideAttachment(pod, nic, alive); no != nil {
		return no.Reason
	}
	if subnet := h.subnet(nic.Spec.Subnet); subnet.UID == "" || !subnet.DeletionTimestamp.IsZero() || claim.CheckAddress(pod, subnet) != nil {
		return reasonSubnetNotFound
	}
	return ""
}

// unallocated is what is wrong when an interface has no address: it may be that there is none.
func (h *history) unallocated(nic *netv1.NetworkInterface, subnet *netv1.Subnet) string {
	taken := map[string]bool{}
	for _, names := range h.leases() {
		for _, name := range names {
			taken[strings.TrimPrefix(name, fmt.Sprintf("%d.", subnet.Status.VNI))] = true
		}
	}
	switch reason := h.why(nic); {
	case reason == reasonExhausted:
		for address := range (ipam.Range{CIDR: prefix(subnet.Spec.CIDR)}).Candidates("") {
			if !taken[address.String()] {
				return "got none though " + address.String() + " is free"
			}
		}
	case reason == reasonAddressInUse:
		if !taken[nic.Spec.Address] {
			return "was not given " + nic.Spec.Address + ", which is free"
		}
	case reason != reasonSubnetDeleting:
		return "has no address, and the reason is " + reason
	}
	return ""
}
