package controller

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// processorTime is what this process, with the controllers and the benchmark's own client, has used so far: on a busy machine
// it tells more than the clock.
func processorTime() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// many does something n times, 16 at once.
func many(n int, do func(i int)) {
	const workers = 16
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for i := worker; i < n; i += workers {
				do(i)
			}
		})
	}
	all.Wait()
}

// BenchmarkBurst makes 1,000 Pods at once in a tenant's Subnet and tells how long after the last one was made all of their
// interfaces have their addresses, and how long all of it took. The aim is at most 10 s for all of it.
func BenchmarkBurst(b *testing.B) {
	const n = 1000
	for b.Loop() {
		b.StopTimer()
		w := newWorld(b)
		ns := w.namespace()
		w.network(ns, "burst", "10.0.0.0/20")
		b.StartTimer()
		start, used := time.Now(), processorTime()
		many(n, func(i int) { w.make(newPod(ns, fmt.Sprintf("p%d", i), netv1.AnnotationSubnet, "burst")) })
		made := time.Since(start)
		w.eventually("all have addresses", func() bool {
			var list netv1.NetworkInterfaceList
			require.NoError(b, w.List(w.ctx, &list))
			ready := 0
			for i := range list.Items {
				if w.isReady(&list.Items[i]) {
					ready++
				}
			}
			return ready == n
		})
		b.ReportMetric(time.Since(start).Seconds(), "s/all")
		b.ReportMetric((processorTime() - used).Seconds(), "cpu-s/all")
		b.ReportMetric(made.Seconds(), "s/making-Pods")
	}
}

// BenchmarkStart starts the controllers where 10,000 interfaces are in use, and tells how long it takes until a Pod that is made
// then has its addresses. The aim is at most 5 s (https://github.com/kubeovn/kube-ovn/issues/1418).
func BenchmarkStart(b *testing.B) {
	const n = 10_000
	w := newWorld(b)
	w.stay = true // to delete it all takes minutes, and nothing comes after it
	ns := w.namespace()
	subnet := w.network(ns, "large", "10.0.0.0/16")
	home := w.subnet(netv1.DefaultSubnet)
	w.stop()
	many(n, func(i int) { w.inUse(ns, i, subnet, home) })
	for b.Loop() {
		start, used := time.Now(), processorTime()
		w.start()
		synced := time.Since(start)
		pod := w.pod(ns, fmt.Sprintf("after-start-%d", b.N), netv1.AnnotationSubnet, "large")
		w.attached(pod)
		b.ReportMetric(time.Since(start).Seconds(), "s/first-address")
		b.ReportMetric(synced.Seconds(), "s/caches")
		b.ReportMetric((processorTime() - used).Seconds(), "cpu-s/first-address")
		b.StopTimer()
		w.deletePod(pod)
		w.stop()
		b.StartTimer()
	}
}

// inUse makes the i-th Pod with its interface and leases, as the controllers leave them.
func (w *world) inUse(ns string, i int, subnet, home *netv1.Subnet) {
	pod := newPod(ns, fmt.Sprintf("p%d", i), netv1.AnnotationSubnet, subnet.Name)
	w.make(pod)
	nic := newInterface(pod, subnet)
	w.make(nic)
	s := &nic.Status
	address := func(of *netv1.Subnet) string {
		a := netip.MustParsePrefix(of.Spec.CIDR).Addr().As4()
		return netip.AddrFrom4([4]byte{a[0], a[1], byte((i + 10) >> 8), byte(i + 10)}).String()
	}
	s.Address, s.PrefixLength, s.GatewayAddress = address(subnet), 16, subnet.Status.GatewayAddress
	s.InfrastructureAddress, s.VNI, s.VPCID = address(home), subnet.Status.VNI, subnet.Status.VPCID
	s.MAC = fmt.Sprintf("02:00:00:00:%02x:%02x", i>>8, i&0xff)
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(nic, conditions.Ready(reasonReady, "the interface has its addresses"))
	require.NoError(w.t, w.Status().Update(w.ctx, nic))
	for _, of := range []struct {
		subnet  *netv1.Subnet
		address string
	}{{subnet, s.Address}, {home, s.InfrastructureAddress}} {
		lease := &netv1.IPLease{Spec: netv1.IPLeaseSpec{Subnet: of.subnet.Name, Address: of.address, Interface: nic.Name, InterfaceUID: nic.UID}}
		lease.Name = ipam.LeaseName(of.subnet.Status.VNI, netip.MustParseAddr(of.address))
		lease.Labels = ipam.Labels(of.subnet.Spec.VPC, of.subnet.Name)
		w.make(lease)
	}
}
