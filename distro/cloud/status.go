package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mnicloud/mnicloud/distro/parts"
	"github.com/mnicloud/mnicloud/distro/supervisor"
)

// NodeStatus is how a node is, as the API server knows it.
type NodeStatus struct {
	Name string `json:"name"`
	// Ready says that the kubelet that runs now has reported that it can run Pods.
	Ready bool `json:"ready"`
	// Since is when the node's Ready condition became what it is.
	Since time.Time `json:"since,omitzero"`
	// Message says why the node is not ready, or takes no new Pods.
	Message string `json:"message,omitempty"`
}

// nodesTimeout is how long Nodes waits for the API server.
const nodesTimeout = 3 * time.Second

// Nodes asks the API server how the nodes are whose kubelets are among the parts, in the parts' order.
func (c Cloud) Nodes(ctx context.Context, status supervisor.Status) ([]NodeStatus, error) {
	return nodesOf(ctx, c.Instance.AdminKubeconfig(), nodesTimeout, status)
}

func nodesOf(ctx context.Context, kubeconfig string, timeout time.Duration, status supervisor.Status) ([]NodeStatus, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the owner's kubeconfig: %w", err)
	}
	config.Timeout = timeout
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	list, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if request := new(url.Error); errors.As(err, &request) {
		err = request.Err // without the address and query, which say nothing here
		if request.Timeout() {
			err = fmt.Errorf("it did not answer within %s", timeout)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the API server does not say how the nodes are: %w", err)
	}
	return nodeStatuses(status, list.Items), nil
}

// nodeStatuses tells of each node that a kubelet runs for, registered or not.
func nodeStatuses(status supervisor.Status, registered []corev1.Node) []NodeStatus {
	var all []NodeStatus
	since := kubelets(status)
	for _, p := range status.Parts {
		name, ok := strings.CutSuffix(p.Name, "/"+parts.Kubelet)
		if !ok {
			continue
		}
		s := NodeStatus{Name: name, Message: "it has not registered"}
		for i := range registered {
			if registered[i].Name == name {
				s = nodeStatus(&registered[i], since[name])
			}
		}
		all = append(all, s)
	}
	return all
}

func nodeStatus(n *corev1.Node, since time.Time) NodeStatus {
	s := NodeStatus{Name: n.Name, Message: notReady(n, since)}
	s.Ready = s.Message == ""
	if s.Ready && n.Spec.Unschedulable {
		s.Message = "cordoned: it takes no new Pods"
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			s.Since = c.LastTransitionTime.Time
		}
	}
	return s
}
