package gateway_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// node is a machine whose kubelet says what is asked of it. It runs nothing: how streams get there is what is shown.
func (w *world) node() {
	w.t.Helper()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.asked.Add(1)
		switch {
		case strings.HasPrefix(r.URL.Path, "/containerLogs/"):
			_, _ = io.WriteString(rw, "hello from the log\n")
			if r.URL.Query().Get("follow") == "true" {
				_ = http.NewResponseController(rw).Flush()
				<-r.Context().Done()
			}
		case strings.HasPrefix(r.URL.Path, "/exec/"):
			w.echo(rw, r)
		default:
			http.NotFound(rw, r)
		}
	}))
	w.t.Cleanup(kubelet.Close)
	address, err := url.Parse(kubelet.URL)
	require.NoError(w.t, err)
	host, port, err := net.SplitHostPort(address.Host)
	require.NoError(w.t, err)
	number, err := strconv.ParseInt(port, 10, 32)
	require.NoError(w.t, err)
	node, err := w.kube.CoreV1().Nodes().Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	_, err = w.kube.CoreV1().Nodes().UpdateStatus(w.ctx, node, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	for _, namespace := range w.namespaces {
		none := false
		_, err := w.kube.CoreV1().Pods(namespace).Create(w.ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: corev1.PodSpec{
				NodeName: node.Name, AutomountServiceAccountToken: &none, ServiceAccountName: "default",
				Containers: []corev1.Container{{Name: "main", Image: "i"}},
			},
		}, metav1.CreateOptions{})
		require.NoError(w.t, err)
	}
}

// serviceAccounts makes the one that Pods need, which a controller makes elsewhere.
func (w *world) serviceAccounts() {
	w.t.Helper()
	for _, namespace := range w.namespaces {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: namespace}}
		_, err := w.kube.CoreV1().ServiceAccounts(namespace).Create(w.ctx, account, metav1.CreateOptions{})
		require.NoError(w.t, err)
	}
}

// echo is a kubelet's exec of a command that writes back what it reads.
func (w *world) echo(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("X-Stream-Protocol-Version", "v4.channel.k8s.io")
	streams := make(chan httpstream.Stream, 5)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(rw, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if connection == nil {
		return
	}
	defer connection.Close()
	byType := map[string]httpstream.Stream{}
	for range 3 {
		select {
		case s := <-streams:
			byType[s.Headers().Get("streamType")] = s
		case <-time.After(patience):
			return
		}
	}
	_, _ = io.Copy(byType["stdout"], byType["stdin"])
	for _, s := range byType {
		_ = s.Close()
	}
	<-connection.CloseChan()
}

func TestLogsAndCommandsOfOwnWorkloadsStream(t *testing.T) {
	w := newWorld(t)
	w.serviceAccounts()
	w.node()
	client := func(user string) *kubernetes.Clientset {
		c, err := kubernetes.NewForConfig(w.config(user))
		require.NoError(t, err)
		return c
	}
	log, err := client("carol").CoreV1().Pods("acme").GetLogs("web", &corev1.PodLogOptions{Container: "main"}).DoRaw(t.Context())
	require.NoError(t, err)
	require.Equal(t, "hello from the log\n", string(log))
	_, err = client("bob").CoreV1().Pods("acme").GetLogs("web", &corev1.PodLogOptions{}).Stream(t.Context())
	require.ErrorContains(t, err, "not a member")

	run := func(user string) (string, error) {
		request := client(user).CoreV1().RESTClient().Post().Namespace("acme").Resource("pods").Name("web").SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Container: "main", Command: []string{"cat"}, Stdin: true, Stdout: true}, scheme.ParameterCodec)
		executor, err := remotecommand.NewSPDYExecutor(w.config(user), http.MethodPost, request.URL())
		require.NoError(t, err)
		var out bytes.Buffer
		err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("there and back"), Stdout: &out})
		return out.String(), err
	}
	out, err := run("alice")
	require.NoError(t, err)
	require.Equal(t, "there and back", out)
	for _, user := range []string{"bob", "carol"} {
		_, err = run(user)
		require.Error(t, err, "%s runs a command in a Pod of acme", user)
		w.noNamespace(err.Error())
	}
	pod, err := client("carol").CoreV1().Pods("acme").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "acme", pod.Namespace)
	require.Equal(t, 400, w.send("alice", http.MethodGet, "/api/v1/namespaces/acme/pods/web/exec?command=cat", "").code)
}

func TestACommandAndALogEndWhenTheirCallerIsNoLongerAMember(t *testing.T) {
	w := newWorld(t)
	w.serviceAccounts()
	w.node()
	c, err := kubernetes.NewForConfig(w.config("alice"))
	require.NoError(t, err)
	log, err := c.CoreV1().Pods("acme").GetLogs("web", &corev1.PodLogOptions{Container: "main", Follow: true}).Stream(t.Context())
	require.NoError(t, err)
	defer log.Close()
	request := c.CoreV1().RESTClient().Post().Namespace("acme").Resource("pods").Name("web").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "main", Command: []string{"cat"}, Stdin: true, Stdout: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(w.config("alice"), http.MethodPost, request.URL())
	require.NoError(t, err)
	in, typed := io.Pipe()
	shown, out := io.Pipe()
	ended := make(chan error, 2)
	go func() {
		ended <- executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: out})
	}()
	_, err = io.WriteString(typed, "x")
	require.NoError(t, err)
	_, err = io.ReadFull(shown, make([]byte, 1))
	require.NoError(t, err, "the command runs")
	go func() {
		_, err := io.Copy(io.Discard, log)
		ended <- err
	}()
	w.user("alice", map[string]string{"globex": "member"})
	for range 2 {
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatal("it goes on")
		}
	}
	require.NoError(t, typed.Close())
}
