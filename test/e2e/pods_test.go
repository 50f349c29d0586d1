//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// serverPod is an ordinary Pod that answers HTTP on port 8080 with its name, on one node.
func serverPod(namespace, name, node string) *corev1.Pod {
	pod := ordinaryPod(namespace, name, node, "whoami")
	pod.Labels = map[string]string{"app": "web"}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "MNI_NAME", Value: name}}
	return pod
}

// shellPod is an ordinary Pod with a shell, on one node.
func shellPod(namespace, name, node string) *corev1.Pod {
	pod := ordinaryPod(namespace, name, node, "busybox")
	pod.Spec.Containers[0].Command = []string{"sh", "-c", "echo " + name + " has started; exec sleep 1000000"}
	return pod
}

func ordinaryPod(namespace, name, node, image string) *corev1.Pod {
	grace := int64(1)
	return &corev1.Pod{
		ObjectMeta: objectMeta(namespace, name),
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelHostname: node},
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []corev1.Container{{Name: "main", Image: registryName + "/mni/" + image + ":latest"}},
		},
	}
}

// running waits until the Pods are Ready and refreshes them.
func running(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		eventually(t, "Pod "+pod.Name+" is Ready", func(ctx context.Context) error {
			if err := kube.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && pod.Status.PodIP != "" {
					return nil
				}
			}
			return fmt.Errorf("phase %s, containers %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		})
	}
}

// inPod runs a command in an ordinary Pod.
func inPod(ctx context.Context, pod *corev1.Pod, command ...string) (string, error) {
	return kubectl(ctx, append([]string{"exec", "-n", pod.Namespace, pod.Name, "--"}, command...)...)
}

// get asks for a URL from the machine itself.
func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestOrdinaryPods(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "plain")
	var servers, shells []*corev1.Pod
	for i, node := range nodes {
		servers = append(servers, serverPod(namespace, fmt.Sprintf("server-%d", i+1), node))
		shells = append(shells, shellPod(namespace, fmt.Sprintf("shell-%d", i+1), node))
	}
	service := &corev1.Service{ObjectMeta: objectMeta(namespace, "web"), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"},
		Ports:    []corev1.ServicePort{{Port: 8080, TargetPort: intstr.FromInt32(8080)}},
	}}
	create(t, servers[0], servers[1], shells[0], shells[1], service)
	running(t, append(servers, shells...)...)

	t.Run("Pod to Pod on the same and on the other node", func(t *testing.T) {
		for _, from := range shells {
			for _, to := range servers {
				eventually(t, from.Name+" reaches "+to.Name, func(ctx context.Context) error {
					return answers(to.Name)(inPod(ctx, from, "timeout", "3", "wget", "-q", "-O", "-", "http://"+to.Status.PodIP+":8080/"))
				})
			}
		}
	})

	t.Run("Pod to Service by name reaches every backend", func(t *testing.T) {
		for _, from := range shells {
			missing := map[string]bool{servers[0].Name: true, servers[1].Name: true}
			eventually(t, from.Name+" has met every backend", func(ctx context.Context) error {
				out, err := inPod(ctx, from, "timeout", "3", "wget", "-q", "-O", "-", "http://web.plain.svc.cluster.local:8080/")
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				for name := range missing {
					if strings.Contains(out, name) {
						delete(missing, name)
					}
				}
				if len(missing) > 0 {
					return fmt.Errorf("not yet met: %v", missing)
				}
				return nil
			})
		}
	})

	t.Run("Pod to the API server by its Service", func(t *testing.T) {
		for _, from := range shells {
			eventually(t, "the API server is reached", func(ctx context.Context) error {
				out, err := inPod(ctx, from, "nc", "-w", "3", "kubernetes.default.svc.cluster.local", "443", "-e", "/bin/true")
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
		}
	})

	t.Run("the machine to Pods and to the Service", func(t *testing.T) {
		for _, to := range servers {
			eventually(t, "the machine reaches "+to.Name, func(ctx context.Context) error {
				return answers(to.Name)(get(ctx, "http://"+to.Status.PodIP+":8080/"))
			})
		}
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the machine reaches the Service", func(ctx context.Context) error {
			return answers("server-")(get(ctx, "http://"+service.Spec.ClusterIP+":8080/"))
		})
	})

	t.Run("Pod to the outside, from the machine's address", func(t *testing.T) {
		outside := startOutside(t)
		for _, from := range shells {
			eventually(t, "the outside answers "+from.Name, func(ctx context.Context) error {
				return answers("you are " + outsideGateway)(inPod(ctx, from, "timeout", "3", "wget", "-q", "-O", "-", outside))
			})
		}
	})

	t.Run("logs, exec and port-forward", func(t *testing.T) {
		for i, pod := range shells {
			out, err := kubectl(t.Context(), "logs", "-n", namespace, pod.Name)
			if err != nil || !strings.Contains(out, pod.Name+" has started") {
				t.Errorf("logs of %s: %v: %s", pod.Name, err, out)
			}
			out, err = inPod(t.Context(), pod, "hostname")
			if err != nil || strings.TrimSpace(out) != pod.Name {
				t.Errorf("exec in %s: %v: %s", pod.Name, err, out)
			}
			forwarded(t, servers[i])
		}
	})
}

// answers makes a check of what was answered: it must contain want.
func answers(want string) func(string, error) error {
	return func(got string, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("%w: %s", err, got)
		case !strings.Contains(got, want):
			return fmt.Errorf("answered %q, which does not contain %q", got, want)
		default:
			return nil
		}
	}
}

// forwarded checks `kubectl port-forward` to a server.
func forwarded(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "mni-kube"), "kubectl", "--kubeconfig", kubeconfigPath(),
		"port-forward", "-n", pod.Namespace, "pod/"+pod.Name, ":8080")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	// "Forwarding from 127.0.0.1:41234 -> 8080"
	scanner := bufio.NewScanner(stdout)
	for scanner.Scan() {
		_, rest, found := strings.Cut(scanner.Text(), "Forwarding from ")
		if !found {
			continue
		}
		address, _, _ := strings.Cut(rest, " ")
		if err := answers(pod.Name)(get(ctx, "http://"+address+"/")); err != nil {
			t.Errorf("port-forward to %s: %v", pod.Name, err)
		}
		return
	}
	t.Errorf("port-forward to %s printed no address", pod.Name)
}

func TestAPodOfAnotherNamespaceIsRefusedByTheTenantsSubnet(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "guarded")
	vpcWithSubnets(t, namespace)
	sh := shell(namespace, "guarded-shell", "a", "")
	create(t, sh)
	ready(t, sh)
	subnet, err := kubectl(t.Context(), "get", "networkinterfaces.net.mnicloud.jp", string(sh.UID), "-o", "jsonpath={.spec.subnet}")
	if err != nil {
		t.Fatalf("%v: %s", err, subnet)
	}
	intruder := shellPod(tenant(t, "intruder"), "intruder", nodes[0])
	intruder.Annotations = map[string]string{"net.mnicloud.jp/subnet": subnet}
	thief := shellPod("intruder", "thief", nodes[0])
	thief.Annotations = map[string]string{"net.mnicloud.jp/subnet": subnet, "net.mnicloud.jp/interface": string(sh.UID)}
	create(t, intruder, thief)
	for _, pod := range []*corev1.Pod{intruder, thief} {
		eventually(t, "an event says why "+pod.Name+" is refused", func(ctx context.Context) error {
			var events corev1.EventList
			if err := kube.List(ctx, &events, client.InNamespace("intruder")); err != nil {
				return err
			}
			for _, event := range events.Items {
				if event.InvolvedObject.Name == pod.Name && event.Type == corev1.EventTypeWarning && strings.Contains(event.Message, "namespace") {
					return nil
				}
			}
			return fmt.Errorf("%d events, none says it", len(events.Items))
		})
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		if pod.Status.PodIP != "" {
			t.Errorf("%s has got %s", pod.Name, pod.Status.PodIP)
		}
	}
}

// outsideGateway is the machine's address towards the outside (TEST-NET-3, RFC 5737); outsideServer is beyond it.
const (
	outsideGateway = "203.0.113.1"
	outsideServer  = "203.0.113.2"
	outsideNetns   = "mni-e2e-outside"
)

// startOutside makes a network namespace that stands for the internet, joined to the machine, with an HTTP server in it
// that says who asks. It returns the server's URL.
func startOutside(t *testing.T) string {
	t.Helper()
	const name, inner, outer = outsideNetns, "outside1", "mni-e2e-out0"
	runIP := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	runIP("netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	runIP("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", outer).Run() })
	runIP("addr", "add", outsideGateway+"/24", "dev", outer)
	runIP("link", "set", outer, "up")
	runIP("-n", name, "addr", "add", outsideServer+"/24", "dev", inner)
	runIP("-n", name, "link", "set", inner, "up")
	runIP("-n", name, "route", "add", "default", "via", outsideGateway) // external addresses are beyond the machine

	listener := listenIn(t, name, outsideServer+":80")
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		_, _ = fmt.Fprintf(w, "you are %s\n", host)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + outsideServer + "/"
}
