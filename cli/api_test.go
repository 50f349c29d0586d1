package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	network "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	auth "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	ctr "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpc "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(awayFromLogins(m)) }

// awayFromLogins runs the tests where there are no logins of who runs them.
func awayFromLogins(m *testing.M) int {
	settings, err := os.MkdirTemp("", "mni")
	if err != nil {
		panic(err)
	}
	if err := os.Setenv("XDG_CONFIG_HOME", settings); err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(settings) }()
	return m.Run()
}

// TestCommandsAgainstAPIServer runs the commands in this process against one real API server. No controller runs: tests
// play their part.
func TestCommandsAgainstAPIServer(t *testing.T) {
	c := newCloud(t)
	t.Run("apply", c.testApply)
	t.Run("apply, bad input", c.testApplyBadInput)
	t.Run("diff", c.testDiff)
	t.Run("edit", c.testEdit)
	t.Run("tenants and users", c.testTenants)
	t.Run("get", c.testGet)
	t.Run("describe", c.testDescribe)
	t.Run("wait", c.testWait)
	t.Run("delete", c.testDelete)
	t.Run("deps", c.testDeps)
	t.Run("cascade", c.testCascade)
	t.Run("kinds", c.testKinds)
	t.Run("completion", c.testCompletion)
	t.Run("connection", c.testConnection)
}

// cloud is the API server of the tests and a client with every right.
type cloud struct {
	kubeconfig string
	client     client.Client
	host       string
	ca         []byte
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	config := apiserver.Start(t)
	scheme := newScheme()
	kubernetes, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return &cloud{kubeconfig: writeKubeconfig(t, config, "default"), client: kubernetes, host: config.Host, ca: config.CAData}
}

// writeKubeconfig writes a kubeconfig file for a client configuration.
func writeKubeconfig(t *testing.T, config *rest.Config, namespace string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u", Namespace: namespace}},
		CurrentContext: "x",
	}, file))
	return file
}

// namespace makes a namespace of the test's own.
func (c *cloud) namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}
	require.NoError(t, c.client.Create(t.Context(), ns))
	return ns.Name
}

// output is what a command did.
type output struct {
	code           int
	stdout, stderr string
}

// mni runs a command line on the cloud.
func (c *cloud) mni(t *testing.T, args ...string) output {
	t.Helper()
	return c.mniWithInput(t, "", args...)
}

func (c *cloud) mniWithInput(t *testing.T, input string, args ...string) output {
	t.Helper()
	return runMni(t.Context(), t.TempDir(), input, append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

// must runs a command line that has to succeed and returns what it printed.
func (c *cloud) must(t *testing.T, args ...string) string {
	t.Helper()
	o := c.mni(t, args...)
	require.Zero(t, o.code, "mni %s\n%s%s", strings.Join(args, " "), o.stdout, o.stderr)
	return o.stdout
}

// mniOnTerminal runs a command line on the cloud with somebody at the terminal who has typed something.
func (c *cloud) mniOnTerminal(t *testing.T, typed string, args ...string) output {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer ours.Close()
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0))
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer theirs.Close()
	_, err = ours.WriteString(typed)
	require.NoError(t, err)
	return runMniFrom(t.Context(), t.TempDir(), theirs, append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

// runMni runs a command line in this process.
func runMni(ctx context.Context, stateDir, input string, args ...string) output {
	return runMniFrom(ctx, stateDir, strings.NewReader(input), args...)
}

func runMniFrom(ctx context.Context, stateDir string, input io.Reader, args ...string) output {
	var stdout, stderr bytes.Buffer
	root := newRoot("v0", folders{state: stateDir}, nil, genericiooptions.IOStreams{In: input, Out: &stdout, ErrOut: &stderr})
	code := Execute(ctx, root, args)
	return output{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

// write writes a file into the folder and returns its path.
func write(t *testing.T, folder, name, text string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func newVpc(namespace, name string) *vpc.Vpc {
	return &vpc.Vpc{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: vpc.VpcSpec{CIDR: "10.0.0.0/16"}}
}

func newSubnet(namespace, name, network string) *vpc.Subnet {
	return &vpc.Subnet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: vpc.SubnetSpec{VPC: network, CIDR: "10.0.1.0/24"}}
}

func newContainer(namespace, name string) *ctr.Container {
	return &ctr.Container{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: ctr.ContainerSpec{Subnet: "front", Image: "web:1"}}
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, network.AddToScheme, vpc.AddToScheme, ctr.AddToScheme, auth.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}
