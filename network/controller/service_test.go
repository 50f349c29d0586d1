package controller

import (
	"bytes"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/config"
)

func newService(namespace, name string) *corev1.Service {
	service := &corev1.Service{}
	service.Namespace, service.Name = namespace, name
	service.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	return service
}

func (w *world) proxy(s *corev1.Service) string {
	require.NoError(w.t, w.Get(w.ctx, client.ObjectKeyFromObject(s), s))
	return s.Labels[netv1.LabelServiceProxy]
}

func TestKubeProxyIsKeptOffTheServicesOfTenants(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	before, foreign := newService(ns, "before"), newService(ns, "foreign")
	foreign.Labels = map[string]string{netv1.LabelServiceProxy: "other"}
	w.make(before, foreign)
	w.network(ns, "a", "10.0.1.0/24")
	after, elsewhere := newService(ns, "after"), newService(w.namespace(), "elsewhere")
	w.make(after, elsewhere)
	for _, s := range []*corev1.Service{before, after} {
		w.eventually(s.Name+" is labelled", func() bool { return w.proxy(s) == netv1.ServiceProxy })
	}
	require.Equal(t, "other", w.proxy(foreign))
	require.Empty(t, w.proxy(elsewhere))

	vpc := w.vpc("a")
	vpc.Spec.Namespaces = nil
	require.NoError(t, w.Update(w.ctx, vpc))
	for _, s := range []*corev1.Service{before, after} {
		w.eventually(s.Name+" is kube-proxy's again", func() bool { return w.proxy(s) == "" })
	}
}

// policies installs the network's admission policies, and waits until they are enforced.
func (w *world) policies() {
	w.t.Helper()
	files, err := fs.Glob(config.Policies, "policy/*.yaml")
	require.NoError(w.t, err)
	for _, file := range files {
		content, err := config.Policies.ReadFile(file)
		require.NoError(w.t, err)
		documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
		for {
			object := &unstructured.Unstructured{}
			if documents.Decode(object) != nil {
				break
			}
			err := w.Create(w.ctx, object)
			if !apierrors.IsAlreadyExists(err) {
				require.NoError(w.t, err)
			}
			w.t.Cleanup(func() { _ = w.Delete(w.ctx, object) })
		}
	}
}

func TestNothingLeadsIntoATenantsVPC(t *testing.T) {
	w := newWorld(t)
	w.policies()
	tenant, ordinary := w.namespace(), w.namespace()
	old := newService(tenant, "old")
	old.Spec.Type = corev1.ServiceTypeNodePort
	w.make(old)
	w.network(tenant, "a", "10.0.1.0/24")
	port := newService(tenant, "port")
	port.Spec.Type = corev1.ServiceTypeNodePort
	refused := func(err error) bool {
		return apierrors.IsInvalid(err) && bytes.Contains([]byte(err.Error()), []byte("namespace "+tenant+", which is a tenant's: its Services balance within its VPC only; use type ClusterIP"))
	}
	w.eventually("the policy is enforced", func() bool { return refused(w.Create(w.ctx, port.DeepCopy(), client.DryRunAll)) })
	balancer, external := port.DeepCopy(), newService(tenant, "external")
	balancer.Spec.Type = corev1.ServiceTypeLoadBalancer
	external.Spec.ExternalIPs = []string{"203.0.113.9"}
	require.True(t, refused(w.Create(w.ctx, balancer)))
	require.True(t, refused(w.Create(w.ctx, external)))
	inside := newService(tenant, "inside")
	w.make(inside)
	// Patches: the controller labels the Services meanwhile.
	toNodePort := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"type":"NodePort"}}`))
	require.True(t, refused(w.Patch(w.ctx, inside, toNodePort)))
	// What was there can be changed; in ordinary namespaces all is as it was.
	require.NoError(t, w.Patch(w.ctx, old, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"true"}}}`))))
	port.Namespace, balancer.Namespace, external.Namespace = ordinary, ordinary, ordinary
	port.Name = "other-port"
	w.make(port, balancer, external)
}

func TestAPodOfThePlatformIsRefusedAtAdmissionWhereNoneMayBe(t *testing.T) {
	w := newWorld(t)
	w.policies()
	ns := w.namespace()
	w.eventually("the policy is enforced", func() bool {
		err := w.Create(w.ctx, platformPod(ns, "scraper"), client.DryRunAll)
		return apierrors.IsForbidden(err) && bytes.Contains([]byte(err.Error()), []byte("namespace "+ns+" may have no Pods of the platform"))
	})
	w.make(newPod(ns, "plain"))
	allowed := &corev1.Namespace{}
	allowed.GenerateName, allowed.Labels = "team-", map[string]string{netv1.LabelPlatform: netv1.PlatformTrue}
	w.make(allowed)
	w.make(platformPod(allowed.Name, "scraper"))
}
