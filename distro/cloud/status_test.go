package cloud

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/mnicloud/mnicloud/distro/supervisor"
)

var started = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// theParts are those of a cloud of three nodes.
func theParts() supervisor.Status {
	return supervisor.Status{Parts: []supervisor.PartStatus{
		{Name: "apiserver", State: supervisor.Ready},
		{Name: "node-1/kubelet", Since: started},
		{Name: "node-2/kubelet", Since: started},
		{Name: "node-10/kubelet", Since: started},
	}}
}

func aNode(name string, ready corev1.ConditionStatus, heard time.Time, message string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: ready, Message: message, Reason: "R",
		LastHeartbeatTime: metav1.NewTime(heard), LastTransitionTime: metav1.NewTime(started.Add(time.Second)),
	}}}}
}

func TestEachNodeThatAKubeletRunsForIsTold(t *testing.T) {
	later, since := started.Add(time.Minute), started.Add(time.Second)
	cordoned := aNode("node-10", corev1.ConditionTrue, later, "")
	cordoned.Spec.Unschedulable = true
	got := nodeStatuses(theParts(), []corev1.Node{cordoned, aNode("node-2", corev1.ConditionUnknown, later, "Kubelet stopped posting node status."), aNode("removed", corev1.ConditionTrue, later, "")})
	require.Equal(t, []NodeStatus{
		{Name: "node-1", Message: "it has not registered"},
		{Name: "node-2", Since: since, Message: "Kubelet stopped posting node status."},
		{Name: "node-10", Ready: true, Since: since, Message: "cordoned: it takes no new Pods"},
	}, got)
}

func TestANodeIsNotReadyByWhatAnEarlierKubeletSaidNorWithoutAReason(t *testing.T) {
	old := aNode("node-1", corev1.ConditionTrue, started.Add(-time.Minute), "")
	mute := aNode("node-2", corev1.ConditionFalse, started.Add(time.Minute), "")
	got := nodeStatuses(theParts(), []corev1.Node{old, mute})
	require.False(t, got[0].Ready)
	require.Equal(t, "its kubelet has not reported yet", got[0].Message)
	require.False(t, got[1].Ready, "a condition without a message is no good news")
	require.Equal(t, "R", got[1].Message)
}

func TestNodesAreAskedOfTheAPIServerAndAnUnreachableOneIsTold(t *testing.T) {
	var mute atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if mute.Load() {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/api/v1/nodes" {
			w.WriteHeader(http.StatusNotFound)
		}
		_ = json.NewEncoder(w).Encode(corev1.NodeList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"},
			Items:    []corev1.Node{aNode("node-1", corev1.ConditionTrue, started, "")},
		})
	}))
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: server.URL}},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c"}}, CurrentContext: "x",
	}, kubeconfig))
	nodes, err := nodesOf(t.Context(), kubeconfig, time.Minute, theParts())
	require.NoError(t, err)
	require.Len(t, nodes, 3)
	require.True(t, nodes[0].Ready)

	mute.Store(true)
	_, err = nodesOf(t.Context(), kubeconfig, 50*time.Millisecond, theParts())
	require.EqualError(t, err, "the API server does not say how the nodes are: it did not answer within 50ms")

	server.Close()
	_, err = nodesOf(t.Context(), kubeconfig, time.Minute, theParts())
	require.ErrorContains(t, err, "the API server does not say how the nodes are: ")
	require.ErrorContains(t, err, "connection refused")
	_, err = nodesOf(t.Context(), kubeconfig+"-missing", time.Minute, theParts())
	require.ErrorContains(t, err, "read the owner's kubeconfig")
}
