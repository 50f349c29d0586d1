package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

const (
	// annotationSpec on Pods: a hash of what the Pod was rendered from.
	annotationSpec = "ctr.mnicloud.jp/spec-hash"
	// containerName is the name of the one container in the Pod.
	containerName = "main"

	// stopSeconds is how long a container may take to end after SIGTERM.
	stopSeconds = 10
	// silentSeconds is how long a Pod stays on a node after nobody has heard of it for the cluster's grace period (20 s in the
	// embedded default), failingSeconds on one that says that it is not ready. Then another is made elsewhere.
	silentSeconds, failingSeconds = 15, 30
)

// render makes the Container's Pod. The same input gives the same Pod.
func render(c *ctrv1.Container, subnet *vpcv1.Subnet, address string) (*corev1.Pod, error) {
	hash, err := specHash(c, subnet, address)
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{annotationSpec: hash, netv1.AnnotationInterface: string(c.UID)}
	maps.Copy(annotations, subnet.Status.Attachment.PodAnnotations)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: c.Name,
			Labels:          map[string]string{ctrv1.LabelContainer: c.Name},
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, ctrv1.GroupVersion.WithKind("Container"))},
		},
		Spec: corev1.PodSpec{
			Hostname:                      c.Name,
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: ptr.To[int64](stopSeconds),
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			DNSPolicy:                     corev1.DNSNone,
			DNSConfig:                     &corev1.PodDNSConfig{Nameservers: []string{netv1.ResolverAddress}, Searches: []string{subnet.Spec.VPC + ".internal"}},
			SecurityContext: &corev1.PodSecurityContext{
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Tolerations: []corev1.Toleration{tolerate(corev1.TaintNodeNotReady, failingSeconds), tolerate(corev1.TaintNodeUnreachable, silentSeconds)},
			Containers:  []corev1.Container{renderContainer(c, subnet, address)},
		},
	}
	if c.Spec.Node != "" {
		// Asked of the scheduler, so that taints and room count; spec.nodeName would go around it.
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: c.Spec.Node}
	}
	return pod, nil
}

func renderContainer(c *ctrv1.Container, subnet *vpcv1.Subnet, address string) corev1.Container {
	out := corev1.Container{
		Name: containerName, Image: c.Spec.Image, Command: c.Spec.Command, Args: c.Spec.Args,
		Env: environment(c, subnet, address),
		Resources: corev1.ResourceRequirements{
			Requests: renderAmounts(c.Spec.Resources.Requests), Limits: renderAmounts(c.Spec.Resources.Limits),
		},
		// Pod Security's baseline. The default capabilities stay: ping needs NET_RAW, and the network drops what is forged.
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false)},
	}
	for _, p := range c.Spec.Ports {
		out.Ports = append(out.Ports, corev1.ContainerPort{Name: p.Name, ContainerPort: p.Port, Protocol: p.Protocol})
	}
	if probes := c.Spec.Probes; probes != nil {
		out.StartupProbe = renderProbe(probes.Startup)
		out.LivenessProbe = renderProbe(probes.Liveness)
		out.ReadinessProbe = renderProbe(probes.Readiness)
	}
	return out
}

func renderAmounts(a *ctrv1.Amounts) corev1.ResourceList {
	if a == nil {
		return nil
	}
	list := corev1.ResourceList{}
	if a.CPU != nil {
		list[corev1.ResourceCPU] = *a.CPU
	}
	if a.Memory != nil {
		list[corev1.ResourceMemory] = *a.Memory
	}
	return list
}

// environment is the cloud's variables, then the tenant's, which may refer to them.
func environment(c *ctrv1.Container, subnet *vpcv1.Subnet, address string) []corev1.EnvVar {
	env := []corev1.EnvVar{
		{Name: "MNI_NAME", Value: c.Name},
		{Name: "MNI_ADDRESS", Value: address},
		{Name: "MNI_VPC", Value: subnet.Spec.VPC},
		{Name: "MNI_SUBNET", Value: subnet.Name},
		{Name: "MNI_NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"}}},
	}
	for _, e := range c.Spec.Env {
		env = append(env, corev1.EnvVar{Name: e.Name, Value: e.Value})
	}
	return env
}

func renderProbe(p *ctrv1.Probe) *corev1.Probe {
	if p == nil {
		return nil
	}
	out := &corev1.Probe{
		InitialDelaySeconds: p.InitialDelaySeconds, PeriodSeconds: p.PeriodSeconds,
		TimeoutSeconds: p.TimeoutSeconds, FailureThreshold: p.FailureThreshold,
	}
	switch {
	case p.Exec != nil:
		out.Exec = &corev1.ExecAction{Command: p.Exec.Command}
	case p.HTTPGet != nil:
		out.HTTPGet = &corev1.HTTPGetAction{Path: p.HTTPGet.Path, Port: intstr.FromInt32(p.HTTPGet.Port)}
	case p.TCPConnect != nil:
		out.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(p.TCPConnect.Port)}
	}
	return out
}

func tolerate(taint string, seconds int64) corev1.Toleration {
	return corev1.Toleration{
		Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		TolerationSeconds: ptr.To(seconds),
	}
}

// specHash tells Pods of different specs apart, in what a Pod cannot change. It is of what the Pod is made from, not of the Pod: a newer controller that
// renders differently restarts nobody's container.
func specHash(c *ctrv1.Container, subnet *vpcv1.Subnet, address string) (string, error) {
	spec := c.Spec
	spec.SecurityGroups = nil // of the interface
	if checksAddresses(c) {
		spec.SourceDestCheck = nil // as specs from before there was such a field
	}
	data, err := json.Marshal(struct {
		Spec       ctrv1.ContainerSpec
		Attachment *vpcv1.Attachment
		Address    string
	}{spec, subnet.Status.Attachment, address})
	if err != nil {
		return "", fmt.Errorf("hash the spec of Container %s/%s: %w", c.Namespace, c.Name, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16]), nil
}

// newInterface makes the Container's interface, named by its UID, in the network's Subnet.
func newInterface(c *ctrv1.Container, subnet string, groups []string) *netv1.NetworkInterface {
	return &netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{
			Name:        string(c.UID),
			Labels:      map[string]string{ctrv1.LabelNamespace: c.Namespace, ctrv1.LabelContainer: c.Name, netv1.LabelDNSName: c.Name},
			Annotations: map[string]string{netv1.AnnotationHolder: "Container " + c.Name},
		},
		Spec: netv1.NetworkInterfaceSpec{Subnet: subnet, Namespace: c.Namespace, Address: c.Spec.Address, Retain: true, SecurityGroups: groups, SourceDestCheck: ptr.To(checksAddresses(c))},
	}
}

// checksAddresses tells whether only the Container's own address passes.
func checksAddresses(c *ctrv1.Container) bool {
	return c.Spec.SourceDestCheck == nil || *c.Spec.SourceDestCheck
}
