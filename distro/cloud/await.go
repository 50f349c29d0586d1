package cloud

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mnicloud/mnicloud/distro/parts"
	"github.com/mnicloud/mnicloud/distro/supervisor"
)

// ReadyTimeout is how long Up waits for a cloud to become ready before it says what is missing.
const ReadyTimeout = 5 * time.Minute

// await returns when the parts and the nodes are ready, DNS answers and the first Pods do.
func (c Cloud) await(ctx context.Context, options parts.Options, plan supervisor.Plan, progress Progress) error {
	ctx, cancel := context.WithTimeout(ctx, ReadyTimeout)
	defer cancel()
	status, err := c.awaitParts(ctx, plan, progress)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig("installer"))
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := awaitNodes(ctx, kube, kubelets(status)); err != nil {
		return err
	}
	progress("nodes are ready")
	// The Pods first: a Service whose Pods are not there yet refuses, and each refusal counts as a drop.
	if err := awaitPods(ctx, kube); err != nil {
		return fmt.Errorf("the first Pods do not answer: %w", err)
	}
	progress("Pods answer")
	dns := options.Instance.Addresses().DNS.String()
	if err := awaitDNS(ctx, dns); err != nil {
		return fmt.Errorf("the cluster's DNS at %s does not answer: %w", dns, err)
	}
	progress("DNS answers")
	return nil
}

// patience is how often a part may die while the cloud becomes ready.
const patience = 6

func (c Cloud) awaitParts(ctx context.Context, plan supervisor.Plan, progress Progress) (status supervisor.Status, err error) {
	announced, restarts := map[string]bool{}, map[string]int{}
	started := time.Now()
	for {
		status, err = c.Client().Status(ctx, status.Generation, false)
		switch {
		case ctx.Err() != nil:
			return status, c.stuck(plan, status)
		case errors.Is(err, supervisor.ErrNotRunning) && time.Since(started) < 10*time.Second:
			_ = pause(ctx, 20*time.Millisecond) // it has just been started
			continue
		case err != nil:
			return status, fmt.Errorf("the supervisor ended, see %s: %w", plan.Log("supervisor"), err)
		}
		for _, p := range status.Parts {
			if p.Ready() && !announced[p.Name] {
				announced[p.Name] = true
				progress(p.Name + " is ready")
			}
			if _, seen := restarts[p.Name]; !seen {
				restarts[p.Name] = p.Restarts
			}
			if p.State == supervisor.BackOff && p.Restarts-restarts[p.Name] >= patience {
				return status, c.stuck(plan, status)
			}
		}
		if status.Ready() {
			return status, nil
		}
	}
}

// stuck says which parts hold the cloud up, and what they said last.
func (c Cloud) stuck(plan supervisor.Plan, status supervisor.Status) error {
	var lines []string
	for _, p := range status.Parts {
		if p.State == supervisor.Ready || p.State == supervisor.Done || p.State == supervisor.Waiting {
			continue
		}
		lines = append(lines, fmt.Sprintf("  %s: %s %s\n%s", p.Name, p.State, p.Message, lastLines(plan.Log(p.Name), 5)))
	}
	return fmt.Errorf("the cloud does not become ready; `mni status%[1]s` and `mni logs PART%[1]s` say more:\n%[2]s",
		Flag(c.Instance.Name), strings.Join(lines, "\n"))
}

func lastLines(file string, n int) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i := range lines {
		lines[i] = "    " + lines[i]
	}
	return strings.Join(lines, "\n")
}

// again tries until it works or the context ends.
func again(ctx context.Context, try func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		err := try(attempt)
		cancel()
		if err == nil {
			return nil
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

// pause waits; it fails when the context ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func awaitDNS(ctx context.Context, server string) error {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(server, "53"))
	}}
	return again(ctx, func(ctx context.Context) error {
		_, err := resolver.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
		return err
	})
}

// awaitPods asks every DNS server, which are the cloud's first Pods, at the Pod's own address.
func awaitPods(ctx context.Context, kube kubernetes.Interface) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return again(ctx, func(ctx context.Context) error {
		pods, err := kube.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
		if err != nil {
			return err
		}
		answered := 0
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
				continue
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(pod.Status.PodIP, "8181")+"/ready", nil)
			if err != nil {
				return err
			}
			answer, err := client.Do(request)
			if err != nil {
				return err
			}
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s answers %s", pod.Name, answer.Status)
			}
			answered++
		}
		if answered == 0 {
			return errors.New("no DNS server runs")
		}
		return nil
	})
}
