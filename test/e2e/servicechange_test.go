//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// held is a connection on which something is said all the time.
type held struct {
	backend string
	rounds  atomic.Int64
	lost    atomic.Pointer[error]
}

// namedEcho says a name to each who connects to port 8080 of a network namespace, then what it is told.
func namedEcho(t *testing.T, where ns.NetNS, name string) {
	t.Helper()
	var listener net.Listener
	if err := where.Do(func(ns.NetNS) (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", ":8080")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.WriteString(conn, name)
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// backend connects and tells whose connection it is. Names are of equal length.
func backend(where ns.NetNS, address string) (conn net.Conn, name string, err error) {
	if err := where.Do(func(ns.NetNS) (err error) {
		conn, err = net.DialTimeout("tcp4", net.JoinHostPort(address, "80"), time.Second)
		return err
	}); err != nil {
		return nil, "", err
	}
	heard := make([]byte, len("backend-0"))
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(conn, heard); err != nil {
		return nil, "", fmt.Errorf("%w, closing: %w", err, conn.Close())
	}
	return conn, string(heard), nil
}

func TestAServicesConnectionsGoOnWhileItsPodsComeAndGo(t *testing.T) {
	t.Parallel()
	for kind, inVPC := range map[string]bool{"vpc": true, "ordinary": false} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			namespace := tenant(t, "svcchange-"+kind)
			if inVPC {
				vpcWithSubnets(t, namespace)
			}
			placed := func(pod *corev1.Pod, subnet string) *corev1.Pod {
				if inVPC {
					pod = inSubnet(t, pod, subnet, "")
				}
				return pod
			}
			newBackend := func(name, node, subnet string) *corev1.Pod {
				pod := shellPod(namespace, name, node) // its first process takes no notice of SIGTERM
				grace := int64(60)
				pod.Labels, pod.Spec.TerminationGracePeriodSeconds = map[string]string{"app": "web"}, &grace
				return placed(pod, subnet)
			}
			service := webService(namespace, "web")
			first, second, third := newBackend("backend-1", nodes[0], "a"), newBackend("backend-2", nodes[1], "b"), newBackend("backend-3", nodes[1], "a")
			asker := placed(shellPod(namespace, "asker", nodes[0]), "a")
			create(t, service, first, second, asker)
			t.Cleanup(func() { // what is left of the grace is nobody's
				for _, pod := range []*corev1.Pod{first, second, third} {
					_ = kube.Delete(context.Background(), pod, client.GracePeriodSeconds(1))
				}
			})
			running(t, first, second, asker)
			from := podNetns(t, asker)
			for _, pod := range []*corev1.Pod{first, second} {
				namedEcho(t, podNetns(t, pod), pod.Name)
			}

			const many = 20
			newOnesMeet := func(names ...string) {
				t.Helper()
				eventually(t, fmt.Sprintf("new connections go to %v", names), func(context.Context) error {
					met := map[string]int{}
					for range many {
						conn, name, err := backend(from, service.Spec.ClusterIP)
						if err != nil {
							return err
						}
						met[name]++
						if err := conn.Close(); err != nil {
							return err
						}
					}
					if got := slices.Sorted(maps.Keys(met)); !slices.Equal(got, names) {
						return fmt.Errorf("they go to %v", met)
					}
					return nil
				})
			}
			newOnesMeet("backend-1", "backend-2")

			stop := make(chan struct{})
			defer close(stop)
			connections := make([]*held, many)
			at := map[string]int{}
			for i := range connections {
				conn, name, err := backend(from, service.Spec.ClusterIP)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				h := &held{backend: name}
				connections[i] = h
				at[name]++
				go func() {
					pause := time.NewTicker(10 * time.Millisecond)
					defer pause.Stop()
					for {
						select {
						case <-stop:
							return
						case <-pause.C:
						}
						if err := echoes(conn, 10*time.Second); err != nil {
							h.lost.Store(&err)
							return
						}
						h.rounds.Add(1)
					}
				}()
			}
			if len(at) != 2 {
				t.Fatalf("the connections are all with one: %v", at)
			}
			allGoOn := func(when string) {
				t.Helper()
				for _, h := range connections {
					before := h.rounds.Load()
					eventually(t, "a connection goes on "+when, func(context.Context) error {
						if lost := h.lost.Load(); lost != nil {
							t.Fatalf("%s: a connection with %s is lost: %v", when, h.backend, *lost)
						}
						if h.rounds.Load() < before+2 { // one whole round, at least, was after now
							return fmt.Errorf("nothing was answered by %s", h.backend)
						}
						return nil
					})
				}
			}
			terminates := func(pods ...*corev1.Pod) {
				t.Helper()
				for _, pod := range pods {
					if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.DeletionTimestamp == nil {
						t.Fatalf("%s does not terminate (any more), so nothing was seen: %v", pod.Name, err)
					}
				}
			}
			allGoOn("before anything")

			create(t, third)
			running(t, third)
			namedEcho(t, podNetns(t, third), third.Name)
			newOnesMeet("backend-1", "backend-2", "backend-3")
			allGoOn("with a backend more")

			if err := kube.Delete(t.Context(), second); err != nil {
				t.Fatal(err)
			}
			newOnesMeet("backend-1", "backend-3")
			allGoOn("while a backend terminates")
			terminates(second)

			// KEP-1669: those that serve while they terminate have what comes when there are no others.
			for _, pod := range []*corev1.Pod{first, third} {
				if err := kube.Delete(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "no endpoint is ready", func(ctx context.Context) error {
				var all discoveryv1.EndpointSliceList
				if err := kube.List(ctx, &all, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service.Name}); err != nil {
					return err
				}
				for _, slice := range all.Items {
					for _, endpoint := range slice.Endpoints {
						if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
							return fmt.Errorf("%v is", endpoint.Addresses)
						}
					}
				}
				return nil
			})
			newOnesMeet("backend-1", "backend-2", "backend-3")
			allGoOn("while all terminate")
			terminates(first, second, third)
		})
	}
}
