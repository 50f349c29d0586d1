package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/mnicloud/mnicloud/distro/parts"
	"github.com/mnicloud/mnicloud/distro/supervisor"
)

// kubelets are the nodes' names, and since when their kubelets run.
func kubelets(status supervisor.Status) map[string]time.Time {
	since := map[string]time.Time{}
	for _, p := range status.Parts {
		if name, ok := strings.CutSuffix(p.Name, "/"+parts.Kubelet); ok {
			since[name] = p.Since
		}
	}
	return since
}

// awaitNodes watches until each node has been reported ready by the kubelet that runs now: what an earlier one said
// before the cloud was stopped is still there.
func awaitNodes(ctx context.Context, kube kubernetes.Interface, since map[string]time.Time) error {
	waiting := map[string]string{}
	for name := range since {
		waiting[name] = "it has not registered"
	}
	see := func(n *corev1.Node) {
		if _, ours := since[n.Name]; !ours {
			return
		}
		if why := notReady(n, since[n.Name]); why != "" {
			waiting[n.Name] = why
		} else {
			delete(waiting, n.Name)
		}
	}
	list, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	for i := range list.Items {
		see(&list.Items[i])
	}
	events, err := kube.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return fmt.Errorf("watch the nodes: %w", err)
	}
	defer events.Stop()
	for len(waiting) > 0 {
		select {
		case <-ctx.Done():
			return notReadyError(waiting)
		case event, ok := <-events.ResultChan():
			if !ok {
				return errors.Join(errors.New("the watch of the nodes ended"), notReadyError(waiting))
			}
			if n, isNode := event.Object.(*corev1.Node); isNode && event.Type != watch.Deleted {
				see(n)
			}
		}
	}
	return nil
}

// notReady says why a node is not ready; empty when it is, as reported since the given time.
func notReady(n *corev1.Node, since time.Time) string {
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		switch {
		case c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)): // the API keeps whole seconds
			return "its kubelet has not reported yet"
		case c.Status != corev1.ConditionTrue:
			return cmp.Or(c.Message, c.Reason, "its kubelet does not say why")
		}
		return ""
	}
	return "its kubelet has not reported yet"
}

func notReadyError(waiting map[string]string) error {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		lines = append(lines, fmt.Sprintf("%s is not ready: %s", name, waiting[name]))
	}
	return errors.New(strings.Join(lines, "; "))
}
