//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

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
	conn, err := a.dial(ctx, network, "53", timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	c := dns.Client{Net: network, Timeout: timeout}
	reply, _, err := c.ExchangeWithConnContext(ctx, new(dns.Msg).SetQuestion(name, dns.TypeA), &dns.Conn{Conn: conn})
	if err != nil {
		return "", err
	}
	said := []string{dns.RcodeToString[reply.Rcode]}
	for _, r := range reply.Answer {
		said = append(said, strings.TrimPrefix(r.String(), r.Header().String()))
	}
	return strings.Join(said, " "), nil
}

// resolves waits until a name is answered so, by both protocols.
func (a asker) resolves(t *testing.T, name, want string) {
	t.Helper()
	for _, network := range []string{"udp", "tcp"} {
		eventually(t, fmt.Sprintf("%s/%s resolves %s by %s", a.Namespace, a.Name, name, network), func(ctx context.Context) error {
			said, err := a.resolve(ctx, network, name, 3*time.Second)
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
