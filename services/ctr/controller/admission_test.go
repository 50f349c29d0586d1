package controller

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

func cpu(cores string) *ctrv1.Amounts { return &ctrv1.Amounts{CPU: ptr.To(resource.MustParse(cores))} }

func memory(bytes string) *ctrv1.Amounts {
	return &ctrv1.Amounts{Memory: ptr.To(resource.MustParse(bytes))}
}

func TestTheAPIServerRefusesContainersThatCannotBe(t *testing.T) {
	w := newTenant(t)
	for _, tc := range []struct {
		name   string
		change func(*ctrv1.Container)
		says   string
	}{
		{"no image", func(c *ctrv1.Container) { c.Spec.Image = "" }, "image must be [registry/]repository[:tag]"},
		{"image in capitals", func(c *ctrv1.Container) { c.Spec.Image = "WhoAmI" }, "image must be [registry/]repository[:tag]"},
		{"image with a space", func(c *ctrv1.Container) { c.Spec.Image = "who ami" }, "image must be [registry/]repository[:tag]"},
		{"image with a scheme", func(c *ctrv1.Container) { c.Spec.Image = "https://registry/whoami" }, "image must be [registry/]repository[:tag]"},
		{"image with an empty tag", func(c *ctrv1.Container) { c.Spec.Image = "whoami:" }, "image must be [registry/]repository[:tag]"},
		{"image with half a digest", func(c *ctrv1.Container) { c.Spec.Image = "whoami@sha256:abc" }, "image must be [registry/]repository[:tag]"},
		{"image with a first part in capitals that is no registry", func(c *ctrv1.Container) { c.Spec.Image = "UPPER/x" }, "with the repository in lower case, such as registry.mni.internal/shop/web:1"},
		{"an address that is none", func(c *ctrv1.Container) { c.Spec.Address = "10.0.1" }, "address must be an IPv4 address such as 10.0.1.7"},
		{"an IPv6 address", func(c *ctrv1.Container) { c.Spec.Address = "fd00::7" }, "address must be an IPv4 address"},
		{"no Subnet", func(c *ctrv1.Container) { c.Spec.Subnet = "" }, "spec.subnet"},
		{"a Subnet of another namespace", func(c *ctrv1.Container) { c.Spec.Subnet = strings.Repeat("x", 64) }, "spec.subnet"},
		{"the cloud's variable", func(c *ctrv1.Container) { c.Spec.Env = []ctrv1.EnvVar{{Name: "MNI_ADDRESS"}} }, "names that begin with MNI_ are set by the cloud"},
		{"a variable that is none", func(c *ctrv1.Container) { c.Spec.Env = []ctrv1.EnvVar{{Name: "1A"}} }, "name must begin with a letter or '_'"},
		{"a variable twice", func(c *ctrv1.Container) { c.Spec.Env = []ctrv1.EnvVar{{Name: "A"}, {Name: "A"}} }, "spec.env"},
		{"port 0", func(c *ctrv1.Container) { c.Spec.Ports = []ctrv1.Port{{Port: 0}} }, "spec.ports"},
		{"port 65536", func(c *ctrv1.Container) { c.Spec.Ports = []ctrv1.Port{{Port: 65536}} }, "spec.ports"},
		{"a port's name", func(c *ctrv1.Container) { c.Spec.Ports = []ctrv1.Port{{Port: 1, Name: "80"}} }, "name must be lower case letters, digits and '-' between them"},
		{"a protocol", func(c *ctrv1.Container) { c.Spec.Ports = []ctrv1.Port{{Port: 1, Protocol: "SCTP"}} }, "spec.ports"},
		{"two ways to probe", func(c *ctrv1.Container) {
			c.Spec.Probes = &ctrv1.Probes{Liveness: &ctrv1.Probe{HTTPGet: &ctrv1.HTTPGet{Port: 80}, TCPConnect: &ctrv1.TCPConnect{Port: 80}}}
		}, "set exactly one of exec, httpGet and tcpConnect"},
		{"no way to probe", func(c *ctrv1.Container) { c.Spec.Probes = &ctrv1.Probes{Readiness: &ctrv1.Probe{}} }, "set exactly one of"},
		{"a Subnet with a slash", func(c *ctrv1.Container) { c.Spec.Subnet = "red/web" }, "subnet must be the name of a Subnet of the same tenant"},
		{"a SecurityGroup with a slash", func(c *ctrv1.Container) { c.Spec.SecurityGroups = []string{"red/web"} }, "must be the name of a SecurityGroup of the same tenant"},
		{"a port twice", func(c *ctrv1.Container) { c.Spec.Ports = []ctrv1.Port{{Port: 80}, {Port: 80}} }, "each port and protocol may stand only once"},
		{"a port's name twice", func(c *ctrv1.Container) {
			c.Spec.Ports = []ctrv1.Port{{Port: 80, Name: "web"}, {Port: 81, Name: "web"}}
		}, "spec.ports: Invalid value: each port's name may stand only once"},
		{"no memory", func(c *ctrv1.Container) { c.Spec.Resources.Limits = memory("1") }, "memory must be from 16Mi to 64Ti"},
		{"more memory than there can be", func(c *ctrv1.Container) { c.Spec.Resources.Requests = memory("1Ei") }, "memory must be from 16Mi to 64Ti"},
		{"negative cpu", func(c *ctrv1.Container) { c.Spec.Resources.Limits = cpu("-1") }, "cpu must be more than 0 and at most 1024 cores"},
		{"too much cpu", func(c *ctrv1.Container) { c.Spec.Resources.Requests = cpu("1000000") }, "cpu must be more than 0 and at most 1024 cores"},
		{"more cpu asked for than given", func(c *ctrv1.Container) {
			c.Spec.Resources = ctrv1.Resources{Requests: cpu("2"), Limits: cpu("1500m")}
		}, "requests.cpu must not be more than limits.cpu"},
		{"more memory asked for than given", func(c *ctrv1.Container) {
			c.Spec.Resources = ctrv1.Resources{Requests: memory("2Gi"), Limits: memory("1Gi")}
		}, "requests.memory must not be more than limits.memory"},
		{"a path without a slash", func(c *ctrv1.Container) {
			c.Spec.Probes = &ctrv1.Probes{Liveness: &ctrv1.Probe{HTTPGet: &ctrv1.HTTPGet{Port: 80, Path: "healthz"}}}
		}, "path must begin with a slash, such as /healthz"},
		{"a node", func(c *ctrv1.Container) { c.Spec.Node = "Node 1" }, "node must be the name of a node, such as node-1"},
		{"an argument longer than Linux takes", func(c *ctrv1.Container) { c.Spec.Args = []string{"a", strings.Repeat("x", 200_000)} }, "spec.args[1]"},
		{"a command longer than Linux takes", func(c *ctrv1.Container) { c.Spec.Command = []string{strings.Repeat("x", 30_001)} }, "spec.command[0]"},
		{"a NUL in the command", func(c *ctrv1.Container) { c.Spec.Command = []string{"sh", "a\x00b"} }, "must not hold a NUL character"},
		{"a NUL in the arguments", func(c *ctrv1.Container) { c.Spec.Args = []string{"a\x00b"} }, "must not hold a NUL character"},
		{"a NUL in a probe's command", func(c *ctrv1.Container) {
			c.Spec.Probes = &ctrv1.Probes{Startup: &ctrv1.Probe{Exec: &ctrv1.Exec{Command: []string{"a\x00b"}}}}
		}, "must not hold a NUL character"},
		{"a NUL in a variable", func(c *ctrv1.Container) { c.Spec.Env = []ctrv1.EnvVar{{Name: "A", Value: "a\x00b"}} }, "value must not hold a NUL character"},
		{"a variable longer than Linux takes", func(c *ctrv1.Container) { c.Spec.Env = []ctrv1.EnvVar{{Name: "A", Value: strings.Repeat("x", 30_001)}} }, "spec.env[0].value"},
		{"a long name", func(c *ctrv1.Container) { c.Name = strings.Repeat("a", 64) }, "metadata.name must be at most 63"},
		{"a name with dots", func(c *ctrv1.Container) { c.Name = "a.b" }, "metadata.name must be"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &ctrv1.Container{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "x"}, Spec: ctrv1.ContainerSpec{Subnet: "web", Image: "whoami"}}
			tc.change(c)
			err := w.Create(t.Context(), c)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, tc.says)
		})
	}
	for _, image := range []string{
		"whoami", "whoami:1", "localhost/whoami", "Registry.example.com/whoami", "HOST:5000/whoami", "library/whoami", "registry.mni.internal/mni/whoami:latest", "registry:5000/a/b/c:v1.2.3-rc.1_x",
		"whoami@sha256:" + strings.Repeat("a", 64), "registry.example.com/a__b/c-d:1@sha256:" + strings.Repeat("0", 64),
	} {
		t.Run(image+" is allowed", func(t *testing.T) {
			c := &ctrv1.Container{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "ok-"}, Spec: ctrv1.ContainerSpec{Subnet: "web", Image: image}}
			require.NoError(t, w.Create(t.Context(), c))
		})
	}
}

func TestTheSubnetAndTheAddressOfAContainerCannotBeChanged(t *testing.T) {
	w := newTenant(t)
	c := w.container("web-0", "web")
	c.Spec.Subnet = "other"
	require.ErrorContains(t, w.Update(t.Context(), c), "subnet cannot be changed; make a new Container")
	for _, address := range []string{"10.0.1.7", "10.0.1.8", ""} {
		fixed := &ctrv1.Container{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "fixed-"},
			Spec:       ctrv1.ContainerSpec{Subnet: "web", Image: "whoami", Address: "10.0.1.9"},
		}
		if address == "10.0.1.7" {
			fixed.Spec.Address = ""
		}
		require.NoError(t, w.Create(t.Context(), fixed))
		fixed.Spec.Address = address
		require.ErrorContains(t, w.Update(t.Context(), fixed), "address cannot be changed; make a new Container")
	}
}

func TestTwoPortsWithoutANameAndTheSamePortOfTwoProtocolsAreAllowed(t *testing.T) {
	w := newTenant(t)
	c := &ctrv1.Container{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "x"}, Spec: ctrv1.ContainerSpec{
		Subnet: "web", Image: "whoami", Ports: []ctrv1.Port{{Port: 53, Name: "dns"}, {Port: 53, Protocol: corev1.ProtocolUDP, Name: "dns-udp"}, {Port: 80}, {Port: 81}},
	}}
	require.NoError(t, w.Create(t.Context(), c))
}

func TestAnAmountThatIsNoneIsRefusedInWords(t *testing.T) {
	w := newTenant(t)
	for _, amount := range []any{"half", "", "1 core", true, []any{}} {
		c := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "ctr.mnicloud.jp/v1alpha1", "kind": "Container", "metadata": map[string]any{"namespace": w.namespace, "name": "x"},
			"spec": map[string]any{"subnet": "web", "image": "whoami", "resources": map[string]any{"limits": map[string]any{"cpu": amount}}},
		}}
		err := w.Create(t.Context(), c)
		require.ErrorContains(t, err, "spec.resources.limits.cpu", "%v", amount)
		require.NotContains(t, err.Error(), "^", "%v: a regular expression is no help", amount)
	}
}
