package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func platformPod(namespace, name string, annotations ...string) *corev1.Pod {
	pod := newPod(namespace, name, annotations...)
	pod.Labels = map[string]string{netv1.LabelPlatform: netv1.PlatformTrue}
	return pod
}

func TestOnlyANamespaceThatIsThePlatformsHasPodsOfThePlatform(t *testing.T) {
	pod := platformPod("monitoring", "scraper")
	allowed := map[string]string{netv1.LabelPlatform: netv1.PlatformTrue}
	home, tenant := *newVPC(netv1.DefaultVPC, "monitoring"), *newVPC("shop", "team-a")
	require.Nil(t, checkPlatform(pod, allowed, []netv1.VPC{home, tenant}))
	for name, c := range map[string]struct {
		pod       *corev1.Pod
		namespace map[string]string
		vpcs      []netv1.VPC
		says      string
	}{
		"not labelled":       {pod, nil, nil, "namespace monitoring may have no Pods of the platform"},
		"labelled otherwise": {pod, map[string]string{netv1.LabelPlatform: "yes"}, nil, "may have no Pods of the platform"},
		"a tenant's":         {pod, allowed, []netv1.VPC{home, tenant, *newVPC("mine", "monitoring")}, "VPC mine is namespace monitoring's"},
		"in a tenant's VPC":  {platformPod("monitoring", "scraper", netv1.AnnotationSubnet, "front"), allowed, nil, "this one asks for front"},
	} {
		t.Run(name, func(t *testing.T) {
			no := checkPlatform(c.pod, c.namespace, c.vpcs)
			require.NotNil(t, no)
			require.Equal(t, reasonPlatformRefused, no.Reason)
			require.Contains(t, no.Message, c.says)
		})
	}
}

func TestAPodOfThePlatformIsRefusedUntilItsNamespaceIsLabelled(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	require.False(t, w.attached(w.pod(ns, "plain")).Spec.Platform)
	pod := platformPod(ns, "scraper")
	w.make(pod)
	w.told(pod, reasonPlatformRefused)
	require.Empty(t, w.nic(string(pod.UID)).UID, "nothing half-made")

	var namespace corev1.Namespace
	require.NoError(t, w.Get(w.ctx, client.ObjectKey{Name: ns}, &namespace))
	namespace.Labels[netv1.LabelPlatform] = netv1.PlatformTrue
	require.NoError(t, w.Update(w.ctx, &namespace))
	require.True(t, w.attached(pod).Spec.Platform)
}

func TestATenantsNamespaceBecomesThePlatformsWhenNoVPCListsIt(t *testing.T) {
	w := newWorld(t)
	ns := &corev1.Namespace{}
	ns.GenerateName, ns.Labels = "team-", map[string]string{netv1.LabelPlatform: netv1.PlatformTrue}
	w.make(ns)
	w.network(ns.Name, "a", "10.0.1.0/24")
	pod := platformPod(ns.Name, "scraper")
	w.make(pod)
	w.told(pod, reasonPlatformRefused)
	vpc := w.vpc("a")
	vpc.Spec.Namespaces = nil
	require.NoError(t, w.Update(w.ctx, vpc))
	require.True(t, w.attached(pod).Spec.Platform)
}
