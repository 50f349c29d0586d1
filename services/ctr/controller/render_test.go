package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mnicloud/mnicloud/kit/conditions"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

// full is a Container with everything set.
func full() *ctrv1.Container {
	c := aContainer()
	c.Spec = ctrv1.ContainerSpec{
		Subnet: "web", Image: "whoami:1", Command: []string{"/whoami"}, Args: []string{"-v"}, Node: "node-2",
		Env:   []ctrv1.EnvVar{{Name: "URL", Value: "http://$(MNI_ADDRESS)"}},
		Ports: []ctrv1.Port{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		Probes: &ctrv1.Probes{
			Startup:   &ctrv1.Probe{TCPConnect: &ctrv1.TCPConnect{Port: 80}, FailureThreshold: 3},
			Liveness:  &ctrv1.Probe{Exec: &ctrv1.Exec{Command: []string{"true"}}, TimeoutSeconds: 2},
			Readiness: &ctrv1.Probe{HTTPGet: &ctrv1.HTTPGet{Path: "/", Port: 80}, PeriodSeconds: 5, InitialDelaySeconds: 1},
		},
		Resources: ctrv1.Resources{Limits: &ctrv1.Amounts{Memory: ptr.To(resource.MustParse("64Mi"))}},
	}
	return c
}

func TestAPodIsWhatItsContainerSays(t *testing.T) {
	c, subnet := full(), aSubnet(conditions.Ready("Ready", ""))
	pod, err := render(c, subnet, "10.0.1.2")
	require.NoError(t, err)

	require.Equal(t, "a", pod.Namespace)
	require.Equal(t, "web-0", pod.Name)
	require.Equal(t, "web-0", pod.Spec.Hostname)
	require.Equal(t, "web-0", pod.Labels["ctr.mnicloud.jp/container"])
	require.True(t, metav1.IsControlledBy(pod, c))
	require.Equal(t, "s-uid", pod.Annotations["net.mnicloud.jp/subnet"])
	require.Equal(t, "c-uid", pod.Annotations["net.mnicloud.jp/interface"], "one interface for all Pods of a Container")

	spec := pod.Spec
	require.False(t, *spec.AutomountServiceAccountToken)
	require.False(t, *spec.EnableServiceLinks)
	require.Equal(t, corev1.RestartPolicyAlways, spec.RestartPolicy)
	require.Equal(t, corev1.DNSNone, spec.DNSPolicy)
	require.Equal(t, []string{"169.254.0.53"}, spec.DNSConfig.Nameservers)
	require.Equal(t, []string{"main.internal"}, spec.DNSConfig.Searches)
	require.Empty(t, spec.NodeName, "the scheduler places it")
	require.Equal(t, map[string]string{"kubernetes.io/hostname": "node-2"}, spec.NodeSelector)
	seconds := map[string]int64{}
	for _, toleration := range spec.Tolerations {
		seconds[toleration.Key] = *toleration.TolerationSeconds
	}
	require.Equal(t, map[string]int64{corev1.TaintNodeNotReady: 30, corev1.TaintNodeUnreachable: 15}, seconds)

	container := spec.Containers[0]
	require.Equal(t, []string{"/whoami"}, container.Command)
	require.Equal(t, []string{"-v"}, container.Args)
	require.Equal(t, []corev1.EnvVar{
		{Name: "MNI_NAME", Value: "web-0"},
		{Name: "MNI_ADDRESS", Value: "10.0.1.2"},
		{Name: "MNI_VPC", Value: "main"},
		{Name: "MNI_SUBNET", Value: "web"},
		{Name: "MNI_NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"}}},
		{Name: "URL", Value: "http://$(MNI_ADDRESS)"},
	}, container.Env, "the cloud's come first, so that a tenant's may refer to them")
	require.False(t, *container.SecurityContext.AllowPrivilegeEscalation)
	require.Nil(t, container.SecurityContext.Capabilities, "ping works")
	require.EqualValues(t, 80, container.Ports[0].ContainerPort)
	require.EqualValues(t, 80, container.StartupProbe.TCPSocket.Port.IntVal)
	require.Equal(t, []string{"true"}, container.LivenessProbe.Exec.Command)
	require.Equal(t, "/", container.ReadinessProbe.HTTPGet.Path)
	require.EqualValues(t, 5, container.ReadinessProbe.PeriodSeconds)
	require.Equal(t, "64Mi", container.Resources.Limits.Memory().String())
}

func TestThePodOfABareContainerHasNoOptions(t *testing.T) {
	pod, err := render(aContainer(), aSubnet(conditions.Ready("Ready", "")), "")
	require.NoError(t, err)
	require.Nil(t, pod.Spec.NodeSelector)
	require.Nil(t, pod.Spec.Containers[0].ReadinessProbe)
	require.Empty(t, pod.Spec.Containers[0].Ports)
}

func TestTheHashChangesExactlyWithWhatThePodIsMadeFrom(t *testing.T) {
	subnet := aSubnet(conditions.Ready("Ready", ""))
	hash := func(change func(*ctrv1.Container), address string) string {
		c := full()
		change(c)
		h, err := specHash(c, subnet, address)
		require.NoError(t, err)
		return h
	}
	same := hash(func(*ctrv1.Container) {}, "10.0.1.2")
	require.Equal(t, same, hash(func(*ctrv1.Container) {}, "10.0.1.2"))
	require.Equal(t, same, hash(func(c *ctrv1.Container) { c.Labels = map[string]string{"a": "b"}; c.Status.Restarts = 3 }, "10.0.1.2"))
	require.Equal(t, same, hash(func(c *ctrv1.Container) {
		c.Spec.Resources.Limits.Memory = ptr.To(resource.MustParse("65536Ki"))
	}, "10.0.1.2"), "the same quantity, written differently")
	require.Equal(t, same, hash(func(c *ctrv1.Container) { c.Spec.SourceDestCheck = ptr.To(true) }, "10.0.1.2"), "the default, as specs of before do not have it")
	for name, other := range map[string]string{
		"forwards": hash(func(c *ctrv1.Container) { c.Spec.SourceDestCheck = ptr.To(false) }, "10.0.1.2"),
		"image":    hash(func(c *ctrv1.Container) { c.Spec.Image = "x" }, "10.0.1.2"),
		"env":      hash(func(c *ctrv1.Container) { c.Spec.Env[0].Value = "x" }, "10.0.1.2"),
		"node":     hash(func(c *ctrv1.Container) { c.Spec.Node = "" }, "10.0.1.2"),
		"probe":    hash(func(c *ctrv1.Container) { c.Spec.Probes.Liveness = nil }, "10.0.1.2"),
		"address":  hash(func(*ctrv1.Container) {}, "10.0.1.3"),
	} {
		require.NotEqual(t, same, other, name)
	}
}

func TestTheInterfaceOfAContainerStaysWithIt(t *testing.T) {
	nic := newInterface(aContainer(), "s-uid", nil)
	require.Equal(t, "c-uid", nic.Name)
	require.True(t, nic.Spec.Retain)
	require.Equal(t, "a", nic.Spec.Namespace)
	require.Equal(t, "Container web-0", nic.Annotations["net.mnicloud.jp/holder"])
}
