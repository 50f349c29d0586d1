//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

// asker asks its VPC's resolver from a Container's network namespace, which takes no API server.
type asker struct {
	*ctrv1.Container
	inside ns.NetNS
}

func askerIn(t *testing.T, container *ctrv1.Container) asker {
	t.Helper()
	return asker{container, netns(t, container)}
}

// dial connects to a port of the resolver's address.
func (a asker) dial(ctx context.Context, network, port string, timeout time.Duration) (conn net.Conn, err error) {
	err = a.inside.Do(func(ns.NetNS) error {
		conn, err = (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, net.JoinHostPort(netv1.ResolverAddress, port))
		return err
	})
	return conn, err
}

// resolve asks for the addresses of a name: "NOERROR 10.0.1.5".
func (a asker) resolve(ctx context.Context, network, name string, timeout time.Duration) (string, error) {
	return a.asks(ctx, network, name, dns.TypeA, timeout)
}

// asks asks for a name's records of a type: "NOERROR" and their data, of SRV in order.
func (a asker) asks(ctx context.Context, network, name string, kind uint16, timeout time.Duration) (string, error) {
	conn, err := a.dial(ctx, network, "53", timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	c := dns.Client{Net: network, Timeout: timeout}
	reply, _, err := c.ExchangeWithConnContext(ctx, new(dns.Msg).SetQuestion(name, kind), &dns.Conn{Conn: conn})
	if err != nil {
		return "", err
	}
	var said []string
	for _, r := range reply.Answer {
		said = append(said, strings.TrimPrefix(r.String(), r.Header().String()))
	}
	if kind == dns.TypeSRV {
		slices.Sort(said)
	}
	return strings.Join(append([]string{dns.RcodeToString[reply.Rcode]}, said...), " "), nil
}

// resolves waits until a name is answered so, by both protocols.
func (a asker) resolves(t *testing.T, name, want string) {
	t.Helper()
	a.says(t, name, dns.TypeA, want)
}

// says waits until a question is answered so, by both protocols.
func (a asker) says(t *testing.T, name string, kind uint16, want string) {
	t.Helper()
	for _, network := range []string{"udp", "tcp"} {
		eventually(t, fmt.Sprintf("%s/%s resolves %s by %s", a.Namespace, a.Name, name, network), func(ctx context.Context) error {
			said, err := a.asks(ctx, network, name, kind, 3*time.Second)
			if err == nil && said != want {
				err = fmt.Errorf("%q, not %q", said, want)
			}
			return err
		})
	}
}

func TestNamesResolveInTheirOwnVPCOnly(t *testing.T) {
	t.Parallel()
	shells, address := map[string][]*ctrv1.Container{}, map[string]string{}
	for i, namespace := range []string{tenant(t, "dns-a"), tenant(t, "dns-b")} {
		vpcWithSubnets(t, namespace)
		address[namespace] = fmt.Sprintf("10.0.1.%d", 21+i)
		web, only := whoami(namespace, "web", "a", nodes[i]), whoami(namespace, "only-"+namespace, "b", nodes[1-i])
		web.Spec.Address = address[namespace]
		shells[namespace] = []*ctrv1.Container{shell(namespace, "first", "a", nodes[0]), shell(namespace, "second", "b", nodes[1])}
		create(t, web, only, webService(namespace, "web"), shells[namespace][0], shells[namespace][1])
		ready(t, append([]*ctrv1.Container{web, only}, shells[namespace]...)...)
	}
	for namespace, other := range map[string]string{"dns-a": "dns-b", "dns-b": "dns-a"} {
		for _, container := range shells[namespace] {
			sh := askerIn(t, container)
			sh.resolves(t, "web.main.internal.", "NOERROR "+address[namespace])
			sh.resolves(t, "only-"+other+".main.internal.", "NXDOMAIN")
			sh.resolves(t, "web."+other+".svc.cluster.local.", "NXDOMAIN")
			sh.resolves(t, "kubernetes.default.svc.cluster.local.", "NXDOMAIN")
			if said, err := sh.resolve(t.Context(), "udp", "web."+namespace+".svc.cluster.local.", 10*time.Second); err != nil || !strings.HasPrefix(said, "NOERROR 198.") {
				t.Errorf("the tenant's own Service: %q, %v", said, err)
			}
			eventually(t, "a workload does nothing to find its neighbour", func(ctx context.Context) error {
				body, err := wget(ctx, container, "http://web:8080/", 5)
				if err == nil && !strings.Contains(body, "name: web\n") {
					err = fmt.Errorf("another answered: %s", body)
				}
				return err
			})
		}
	}
	prisoner := askerIn(t, shells["dns-a"][0])
	before := dropsWhere(t, nodes[0], "reason", "resolver_protocol")
	for _, port := range []string{"22", "54", "9440", "9441", "10250"} {
		if conn, err := prisoner.dial(t.Context(), "tcp", port, time.Second); err == nil {
			conn.Close()
			t.Errorf("port %s of the host is open", port)
		} else if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("port %s: %v", port, err)
		}
	}
	eventually(t, "it is counted", func(context.Context) error {
		if now := dropsWhere(t, nodes[0], "reason", "resolver_protocol"); now < before+5 {
			return fmt.Errorf("%v, and before %v", now, before)
		}
		return nil
	})
}

// Services of every kind that has names: a headless one, whose Pods have names of their own, ports with a name, and one that stands for another
// name. Two tenants have the same of each, and get their own.
func TestServicesHaveTheNamesThatKubernetesGivesThem(t *testing.T) {
	t.Parallel()
	namespaces := []string{tenant(t, "names-a"), tenant(t, "names-b")}
	pods, askers := map[string][]*corev1.Pod{}, map[string]*ctrv1.Container{}
	for i, namespace := range namespaces {
		vpcWithSubnets(t, namespace)
		all := webService(namespace, "all")
		all.Spec.ClusterIP = corev1.ClusterIPNone
		named := webService(namespace, "named")
		for _, s := range []*corev1.Service{all, named} {
			s.Spec.Ports[0].Name = "http"
		}
		alias := func(name, target string) *corev1.Service {
			return &corev1.Service{ObjectMeta: objectMeta(namespace, name), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: target}}
		}
		askers[namespace] = shell(namespace, "shell", "a", nodes[i])
		create(t, all, named, alias("near", "shell.main.internal"), alias("theirs", "named."+namespaces[1-i]+".svc.cluster.local"), askers[namespace])
		for j, subnet := range []string{"a", "b"} {
			pod := inSubnet(t, serverPod(namespace, fmt.Sprintf("web-%d", j), nodes[j]), subnet, fmt.Sprintf("10.0.%d.%d", 1+j, 31+i))
			if j == 0 {
				pod.Spec.Hostname, pod.Spec.Subdomain = "first", "all"
			}
			create(t, pod)
			pods[namespace] = append(pods[namespace], pod)
		}
	}
	for i, namespace := range namespaces {
		running(t, pods[namespace]...)
		ready(t, askers[namespace])
		sh := askerIn(t, askers[namespace])
		first, second := fmt.Sprintf("10.0.1.%d", 31+i), fmt.Sprintf("10.0.2.%d", 31+i)
		domain := "." + namespace + ".svc.cluster.local."
		own := strings.ReplaceAll(second, ".", "-") + ".all" + domain
		sh.resolves(t, "all"+domain, "NOERROR "+first+" "+second)
		sh.resolves(t, "first.all"+domain, "NOERROR "+first)
		sh.resolves(t, own, "NOERROR "+second)
		sh.resolves(t, "second.all"+domain, "NXDOMAIN")
		sh.says(t, "_http._tcp.all"+domain, dns.TypeSRV, "NOERROR 0 1 8080 "+own+" 0 1 8080 first.all"+domain)
		sh.says(t, "_http._tcp.named"+domain, dns.TypeSRV, "NOERROR 0 1 80 named"+domain)
		sh.says(t, "_sql._tcp.named"+domain, dns.TypeSRV, "NXDOMAIN")
		sh.says(t, "_http._tcp.named."+namespaces[1-i]+".svc.cluster.local.", dns.TypeSRV, "NXDOMAIN")
		sh.resolves(t, "first.all."+namespaces[1-i]+".svc.cluster.local.", "NXDOMAIN")
		sh.resolves(t, "near"+domain, "NOERROR shell.main.internal. "+askers[namespace].Status.Address)
		sh.resolves(t, "theirs"+domain, "NXDOMAIN named."+namespaces[1-i]+".svc.cluster.local.")
		sh.says(t, strings.Join([]string{fmt.Sprint(31 + i), "1", "0", "10", "in-addr.arpa."}, "."), dns.TypePTR, "NOERROR web-0.main.internal.")
		eventually(t, "a workload reaches the Pod by its name", func(ctx context.Context) error {
			body, err := wget(ctx, askers[namespace], "http://first.all."+namespace+".svc.cluster.local:8080/", 5)
			if err == nil && !strings.Contains(body, "web-0") {
				err = fmt.Errorf("another answered: %s", body)
			}
			return err
		})
	}
}

// The machine's resolver is one beyond the machine here, which knows one name, for as long as the test runs.
func TestNamesOutsideAreAskedOfTheMachinesResolver(t *testing.T) {
	file := filepath.Join(thisInstance(t).Nodes(len(nodes))[0].RunDir(), "resolv.conf")
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotEmpty(t, before, "mni-dns asks nobody outside: the machine's /etc/resolv.conf names no resolver that nodes can reach")
	namespace := tenant(t, "dns-outside")
	vpcWithSubnets(t, namespace)
	container := shell(namespace, "shell", "a", nodes[0])
	create(t, container, &corev1.Service{ObjectMeta: objectMeta(namespace, "elsewhere"), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeExternalName, ExternalName: "www.example.com",
	}})
	ready(t, container)
	startOutside(t)
	var asked, strange atomic.Int64
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetReply(q)
		switch name := strings.ToLower(q.Question[0].Name); {
		case name == "www.example.com." && q.Question[0].Qtype == dns.TypeA:
			asked.Add(1)
			reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.IPv4(198, 51, 100, 77)}}
		case dns.IsSubDomain("internal.", name) || dns.IsSubDomain("cluster.local.", name) || dns.IsSubDomain("10.in-addr.arpa.", name):
			strange.Add(1)
			fallthrough
		default:
			reply.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(reply)
	})
	var conn net.PacketConn
	require.NoError(t, namespaceAt(t, outsideNetns).Do(func(ns.NetNS) (err error) {
		conn, err = (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", outsideServer+":53")
		return err
	}))
	servers := []*dns.Server{{PacketConn: conn, Handler: handler}, {Listener: listenIn(t, outsideNetns, outsideServer+":53"), Handler: handler}}
	for _, s := range servers {
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	resolver := nodes[0] + "/mni-dns"
	restored := false
	t.Cleanup(func() {
		if restored {
			return
		}
		assert.NoError(t, os.WriteFile(file, before, 0o644))
		ended, err := parts(context.WithoutCancel(t.Context()))
		assert.NoError(t, err)
		_ = unix.Kill(ended[resolver].PID, unix.SIGKILL)
	})
	require.NoError(t, os.WriteFile(file, []byte("nameserver "+outsideServer+"\n"), 0o644)) // the file is bound into the node, so it is not replaced
	kill(t, resolver)
	sh := askerIn(t, container)
	sh.resolves(t, "www.example.com.", "NOERROR 198.51.100.77")
	sh.resolves(t, "none.example.com.", "NXDOMAIN")
	sh.resolves(t, "elsewhere."+namespace+".svc.cluster.local.", "NOERROR www.example.com. 198.51.100.77")
	require.Positive(t, asked.Load())
	for _, name := range []string{"nobody.main.internal.", "metadata.google.internal.", "nobody." + namespace + ".svc.cluster.local.", "9.9.9.10.in-addr.arpa."} {
		sh.resolves(t, name, "NXDOMAIN")
	}
	require.Zero(t, strange.Load(), "names of the cloud's own were asked of others")
	require.NoError(t, os.WriteFile(file, before, 0o644))
	kill(t, resolver)
	restored = true
}

func TestNamesResolveWhileTheAPIServerIsAway(t *testing.T) {
	namespace := tenant(t, "dns-alone")
	vpcWithSubnets(t, namespace)
	web, container := whoami(namespace, "web", "a", nodes[0]), shell(namespace, "shell", "a", nodes[0])
	create(t, web, container)
	ready(t, web, container)
	sh := askerIn(t, container)
	want := "NOERROR " + web.Status.Address
	sh.resolves(t, "web.main.internal.", want)

	stop, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for asked := 0; ; asked++ {
			select {
			case <-stop:
				if failed <- nil; asked == 0 {
					t.Error("nothing was asked")
				}
				return
			case <-ticker.C:
			}
			said, err := sh.resolve(t.Context(), "udp", "web.main.internal.", 10*time.Second)
			if err == nil && said != want {
				err = fmt.Errorf("%q, not %q", said, want)
			}
			if err != nil {
				failed <- fmt.Errorf("question %d: %w", asked, err)
				return
			}
		}
	}()
	kill(t, "apiserver")
	close(stop)
	if err := <-failed; err != nil {
		t.Errorf("while the API server was started anew: %v", err)
	}

	node := thisInstance(t).Nodes(len(nodes))[0]
	part := mustParts(t)[nodes[0]+"/mni-dns"]
	t.Cleanup(func() { plug(t, node, true) })
	plug(t, node, false)
	if err := unix.Kill(part.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	sh.resolves(t, "web.main.internal.", want)
	t.Logf("a resolver that was killed on a node without the API server answers again after %.1f s", time.Since(start).Seconds())
	sh.resolves(t, "web.other.internal.", "NXDOMAIN")
	plug(t, node, true)
	nodeIsReady(t, nodes[0])
	ready(t, container, web)
	sh.resolves(t, "web.main.internal.", want)
	isConsistent(t)
}
