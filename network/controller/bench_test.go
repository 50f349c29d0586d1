package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
	"github.com/mnicloud/mnicloud/network/ipam"
	"github.com/mnicloud/mnicloud/test/apiserver"
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

// serverTime is the processor time that the API server and etcd, the children of this process, have used so far.
func serverTime(b *testing.B) time.Duration {
	b.Helper()
	const ticksPerSecond = 100                  // USER_HZ: what Linux counts in for /proc, on every architecture that Go knows
	tasks, err := os.ReadDir("/proc/self/task") // a child belongs to the thread that made it
	require.NoError(b, err)
	var pids []string
	for _, task := range tasks {
		children, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		require.NoError(b, err)
		pids = append(pids, strings.Fields(string(children))...)
	}
	var ticks int64
	for _, pid := range pids {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		require.NoError(b, err)
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest) // from the third one of proc(5) on
		for _, field := range fields[11:13] {
			n, err := strconv.ParseInt(field, 10, 64)
			require.NoError(b, err)
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// requestCount counts what is asked of an API server, by verb and kind.
type requestCount struct {
	next http.RoundTripper
	mu   sync.Mutex
	of   map[string]int
}

// countRequests makes the controllers that start from now on be counted.
func (w *world) countRequests() *requestCount {
	count := &requestCount{of: map[string]int{}}
	counted := rest.CopyConfig(w.server)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		count.next = next
		return count
	})
	w.server = counted
	return count
}

// RoundTrip implements http.RoundTripper.
func (c *requestCount) RoundTrip(r *http.Request) (*http.Response, error) {
	path := strings.Split(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/"), "/")
	var kinds []string
	for i, part := range path {
		if slices.Contains([]string{"pods", "networkinterfaces", "ipleases", "events", "status"}, part) && i > 0 {
			kinds = append(kinds, part)
		}
	}
	response, err := c.next.RoundTrip(r)
	code := 0
	if err == nil {
		code = response.StatusCode
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[fmt.Sprintf("%s %s %d", r.Method, strings.Join(kinds, "/"), code)]++
	return response, err
}

// total is how many there were.
func (c *requestCount) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := 0
	for _, n := range c.of {
		total += n
	}
	return total
}

// String tells them, most first.
func (c *requestCount) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lines []string
	for what, n := range c.of {
		lines = append(lines, fmt.Sprintf("%6d %s", n, what))
	}
	slices.Sort(lines)
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
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
		w := idleWorld(b)
		requests := w.countRequests()
		w.start()
		w.eventually("the default network is ready", func() bool { return w.isReady(w.subnet(netv1.DefaultSubnet)) })
		ns := w.namespace()
		w.network(ns, "burst", "10.0.0.0/20")
		ready := w.watchReady(b)
		b.StartTimer()
		start, used, server := time.Now(), processorTime(), serverTime(b)
		many(n, func(i int) { w.make(newPod(ns, fmt.Sprintf("p%d", i), netv1.AnnotationSubnet, "burst")) })
		made := time.Since(start)
		for range n {
			<-ready
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/all")
		b.ReportMetric((processorTime() - used).Seconds(), "cpu-s/all")
		b.ReportMetric((serverTime(b) - server).Seconds(), "server-cpu-s/all")
		b.ReportMetric(made.Seconds(), "s/making-Pods")
		b.Logf("the controllers' requests:\n%s", requests)
	}
}

// watchReady tells once of each interface that is Ready.
func (w *world) watchReady(b *testing.B) <-chan string {
	b.Helper()
	interfaces, err := cache.New(w.server, cache.Options{Scheme: w.Scheme()})
	require.NoError(b, err)
	informer, err := interfaces.GetInformer(w.ctx, &netv1.NetworkInterface{})
	require.NoError(b, err)
	ready, told := make(chan string, 10_000), map[string]bool{}
	tell := func(o any) {
		if nic, ok := o.(*netv1.NetworkInterface); ok && w.isReady(nic) && !told[nic.Name] {
			told[nic.Name] = true
			ready <- nic.Name
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, o any) { tell(o) }})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(w.ctx)
	b.Cleanup(cancel)
	go func() { _ = interfaces.Start(ctx) }()
	require.True(b, interfaces.WaitForCacheSync(ctx))
	return ready
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
	filling := time.Now()
	w.store(n, func(i int) []client.Object { return w.inUse(ns, i, subnet, home) })
	b.Logf("%d interfaces were made in %s", n, time.Since(filling))
	// A consistent list is answered when the API server has heard of all of them itself, as a server that has run for a while has.
	for _, list := range []client.ObjectList{&corev1.PodList{}, &netv1.NetworkInterfaceList{}, &netv1.IPLeaseList{}} {
		require.NoError(b, w.List(w.ctx, list, client.InNamespace("")))
		require.GreaterOrEqual(b, meta.LenList(list), n)
	}
	requests := w.countRequests()
	for b.Loop() {
		start, used, server := time.Now(), processorTime(), serverTime(b)
		w.start()
		synced := time.Since(start)
		pod := w.pod(ns, fmt.Sprintf("after-start-%d", b.N), netv1.AnnotationSubnet, "large")
		w.attached(pod)
		b.ReportMetric(time.Since(start).Seconds(), "s/first-address")
		b.ReportMetric(synced.Seconds(), "s/caches")
		b.ReportMetric((processorTime() - used).Seconds(), "cpu-s/first-address")
		b.ReportMetric((serverTime(b) - server).Seconds(), "server-cpu-s/first-address")
		b.StopTimer()
		b.Logf("the controllers' requests:\n%s", requests)
		w.deletePod(pod)
		w.stop()
		b.StartTimer()
	}
}

// A start asks for lists and watches, not for interfaces one by one: what it costs does not grow with them. BenchmarkStart tells the time.
// https://github.com/kubeovn/kube-ovn/issues/1418
func TestAStartOnTwoThousandInterfacesAsksForListsOnly(t *testing.T) {
	const n, most = 2000, 100
	w := newWorld(t)
	ns := w.namespace()
	subnet := w.network(ns, "large", "10.0.0.0/16")
	home := w.subnet(netv1.DefaultSubnet)
	w.stop()
	t.Cleanup(func() { // past the API server, too, and before everything else is asked to go
		if w.stop != nil {
			w.stop()
		}
		w.erase("/registry/pods/"+ns+"/", "/registry/net.mnicloud.jp/networkinterfaces/", "/registry/net.mnicloud.jp/ipleases/")
	})
	w.store(n, func(i int) []client.Object { return w.inUse(ns, i, subnet, home) })
	w.eventually("the API server has seen all that was stored past it", func() bool {
		var nics netv1.NetworkInterfaceList
		require.NoError(t, w.List(w.ctx, &nics, client.MatchingLabels(ipam.Labels(subnet.Spec.VPC, subnet.Name))))
		return len(nics.Items) == n
	})
	requests, writes := w.countRequests(), new(counting)
	w.wrap = writes.around
	w.start()
	w.attached(w.pod(ns, "after", netv1.AnnotationSubnet, "large"))
	w.quiet(writes)
	t.Logf("%d requests, %d writes:\n%s", requests.total(), writes.count(), requests)
	require.Positive(t, requests.total())
	require.Less(t, requests.total(), most, "of %d interfaces:\n%s", n, requests)
}

// inUse is the i-th Pod with its interface and leases, as the controllers leave them.
func (w *world) inUse(ns string, i int, subnet, home *netv1.Subnet) []client.Object {
	address := func(of *netv1.Subnet) string {
		a := netip.MustParsePrefix(of.Spec.CIDR).Addr().As4()
		return netip.AddrFrom4([4]byte{a[0], a[1], byte((i + 10) >> 8), byte(i + 10)}).String()
	}
	stored := func(o client.Object) client.Object {
		o.SetUID(uuid.NewUUID())
		o.SetCreationTimestamp(metav1.Now())
		o.SetGeneration(1)
		gvk, err := w.GroupVersionKindFor(o)
		require.NoError(w.t, err)
		o.GetObjectKind().SetGroupVersionKind(gvk)
		return o
	}
	pod := newPod(ns, fmt.Sprintf("p%d", i), netv1.AnnotationSubnet, subnet.Name)
	stored(pod)
	nic := claim.NewInterface(pod, subnet)
	stored(nic)
	s := &nic.Status
	s.Address, s.PrefixLength, s.GatewayAddress = address(subnet), 16, subnet.Status.GatewayAddress
	s.InfrastructureAddress, s.VNI, s.VPCID = address(home), subnet.Status.VNI, subnet.Status.VPCID
	s.MAC = fmt.Sprintf("02:00:00:00:%02x:%02x", i>>8, i&0xff)
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(nic, conditions.Ready(reasonReady, "the interface has its addresses"))
	objects := []client.Object{pod, nic}
	for _, of := range []struct {
		subnet  *netv1.Subnet
		address string
	}{{subnet, s.Address}, {home, s.InfrastructureAddress}} {
		lease := &netv1.IPLease{Spec: netv1.IPLeaseSpec{Subnet: of.subnet.Name, Address: of.address, Interface: nic.Name, InterfaceUID: nic.UID}}
		lease.Name = ipam.LeaseName(of.subnet.Status.VNI, netip.MustParseAddr(of.address))
		lease.Labels = ipam.Labels(of.subnet.Spec.VPC, of.subnet.Name)
		objects = append(objects, stored(lease))
	}
	return objects
}

// store puts objects into etcd, past the API server, which would take minutes: its watches tell of them all the same.
func (w *world) store(n int, objects func(i int) []client.Object) {
	w.t.Helper()
	type put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type operation struct {
		Put put `json:"requestPut"`
	}
	var batch []operation
	flush := func() {
		body, err := json.Marshal(map[string]any{"success": batch})
		require.NoError(w.t, err)
		response, err := http.Post(apiserver.SharedEtcd(w.t)+"/v3/kv/txn", "application/json", bytes.NewReader(body))
		require.NoError(w.t, err)
		answer, err := io.ReadAll(response.Body)
		require.NoError(w.t, errors.Join(err, response.Body.Close()))
		require.Equal(w.t, http.StatusOK, response.StatusCode, "%s", answer)
		batch = nil
	}
	for i := range n {
		for _, o := range objects(i) {
			key := "/registry/net.mnicloud.jp/networkinterfaces/" + o.GetName()
			switch o.(type) {
			case *corev1.Pod:
				key = "/registry/pods/" + o.GetNamespace() + "/" + o.GetName()
			case *netv1.IPLease:
				key = "/registry/net.mnicloud.jp/ipleases/" + o.GetName()
			}
			value, err := json.Marshal(o)
			require.NoError(w.t, err)
			batch = append(batch, operation{put{[]byte(key), value}})
		}
		if len(batch) > 100 || i == n-1 { // etcd takes 128
			flush()
		}
	}
}

// erase deletes from etcd what begins with the prefixes, past the API server.
func (w *world) erase(prefixes ...string) {
	w.t.Helper()
	for _, prefix := range prefixes {
		end := append([]byte(prefix[:len(prefix)-1]), prefix[len(prefix)-1]+1)
		body, err := json.Marshal(map[string][]byte{"key": []byte(prefix), "range_end": end})
		require.NoError(w.t, err)
		response, err := http.Post(apiserver.SharedEtcd(w.t)+"/v3/kv/deleterange", "application/json", bytes.NewReader(body))
		require.NoError(w.t, err)
		answer, err := io.ReadAll(response.Body)
		require.NoError(w.t, errors.Join(err, response.Body.Close()))
		require.Equal(w.t, http.StatusOK, response.StatusCode, "%s", answer)
	}
}
