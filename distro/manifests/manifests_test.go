package manifests_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/distro/manifests"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

var values = manifests.Values{ClusterDNS: "10.0.0.53", DNSReplicas: 2, DNSImage: "registry.example/mni/coredns:1", Forward: true, External: manifests.External{
	Pool: "203.0.113.0/24", LocalASN: 64512, PeerName: "edge", PeerASN: 64513, PeerAddress: "10.0.0.254", BFDIntervalMilliseconds: 300, BFDMultiplier: 3,
}, WebhookURL: "https://192.0.2.1:9443", CABundle: "YQ=="}

func TestEveryObjectSaysWhatItIs(t *testing.T) {
	objects, err := manifests.Objects(values)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, o := range objects {
		id := o.GetAPIVersion() + " " + o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		require.NotEmpty(t, o.GetName(), id)
		require.NotEmpty(t, o.GetKind(), id)
		require.False(t, seen[id], "%s is there twice", id)
		seen[id] = true
	}
	require.True(t, seen["apiextensions.k8s.io/v1 CustomResourceDefinition /networkinterfaces.net.mnicloud.jp"])
}

func TestNamesOutsideAreAskedOnlyWhereThereIsAResolver(t *testing.T) {
	corefile := func(v manifests.Values) string {
		objects, err := manifests.Objects(v)
		require.NoError(t, err)
		for _, o := range objects {
			if o.GetKind() == "ConfigMap" {
				text, _, err := unstructured.NestedString(o.Object, "data", "Corefile")
				require.NoError(t, err)
				return text
			}
		}
		return ""
	}
	require.Contains(t, corefile(values), "forward . /etc/resolv.conf")
	without := values
	without.Forward = false
	require.NotContains(t, corefile(without), "forward")
	require.Contains(t, corefile(without), "kubernetes cluster.local")
}

func TestEachDaemonHasTheGeneratedRolesAndNoOthers(t *testing.T) {
	objects, err := manifests.Objects(values)
	require.NoError(t, err)
	roles, bound := map[string]bool{}, map[string][]string{}
	for _, o := range objects {
		switch o.GetKind() {
		case "ClusterRole":
			roles[o.GetName()] = true
			var role rbacv1.ClusterRole
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
			for _, rule := range role.Rules {
				all := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs)
				require.NotContains(t, all, "*", role.Name)
			}
		case "ClusterRoleBinding":
			var binding rbacv1.ClusterRoleBinding
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding))
			for _, subject := range binding.Subjects {
				bound[subject.Name] = append(bound[subject.Name], binding.RoleRef.Name)
			}
		}
	}
	require.ElementsMatch(t, []string{
		"mni-network-controller", "mni-auth-controller", "mni-vpc-controller", "mni-ctr-controller",
		"mni-dependency-controller", "mni-dependency-definitions", "mni-vpc-dependency", "mni-ctr-dependency",
	}, bound["system:mni:cloud"])
	require.Equal(t, []string{"mni-netd"}, bound["system:mni:netd"])
	require.Equal(t, []string{"mni-bgpd"}, bound["system:mni:bgpd"])
	require.Equal(t, []string{"mni-dns"}, bound["system:mni:dns"])
	require.ElementsMatch(t, []string{"mni-gateway", "mni-gateway-sessions"}, bound["system:mni:gateway"])
	require.Equal(t, []string{"mni-tenant-viewer"}, bound["mni:gateway"], "the watches that users share")
	for _, role := range slices.Concat(bound["system:mni:cloud"], bound["system:mni:gateway"], bound["mni:gateway"], bound["system:mni:netd"], bound["system:mni:bgpd"], bound["system:mni:dns"]) {
		require.True(t, roles[role], "%s is not installed", role)
	}
}

func TestInstallingTwiceChangesNothing(t *testing.T) {
	config := apiserver.Start(t)
	require.NoError(t, manifests.Install(t.Context(), config, withServiceAddress(t, config)))
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	before := versions(t, c)
	require.NoError(t, manifests.Install(t.Context(), config, withServiceAddress(t, config)))
	require.Equal(t, before, versions(t, c))
}

func TestWhatTheOwnerChangedOfTheExternalAddressesStaysUntilMniUpIsGivenOthers(t *testing.T) {
	config := apiserver.Start(t)
	v := withServiceAddress(t, config)
	require.NoError(t, manifests.Install(t.Context(), config, v))
	scheme := runtime.NewScheme()
	require.NoError(t, netv1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	pool := &netv1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	cidrs := func() []string {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
		return pool.Spec.CIDRs
	}
	require.Equal(t, []string{"203.0.113.0/24"}, cidrs())
	pool.Spec.CIDRs = []string{"203.0.113.0/25", "198.51.100.0/28"}
	require.NoError(t, c.Update(t.Context(), pool))
	advertisement := &netv1.BGPAdvertisement{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	require.NoError(t, c.Delete(t.Context(), advertisement))
	require.NoError(t, manifests.Install(t.Context(), config, v))
	require.Equal(t, []string{"203.0.113.0/25", "198.51.100.0/28"}, cidrs())
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(advertisement), advertisement)))

	v.External.Pool, v.External.PeerName, v.External.PeerAddress = "192.168.50.0/24", "router", "192.168.1.1"
	require.NoError(t, manifests.Install(t.Context(), config, v))
	require.Contains(t, cidrs(), "192.168.50.0/24")
	require.Contains(t, cidrs(), "198.51.100.0/28", "what the owner added stays")
	var peers netv1.BGPPeerList
	require.NoError(t, c.List(t.Context(), &peers))
	require.Len(t, peers.Items, 1)
	require.Equal(t, "router", peers.Items[0].Name)
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(advertisement), advertisement)), "nothing said anything else of it")
}

// withServiceAddress asks for a DNS address in the test server's own range.
func withServiceAddress(t *testing.T, config *rest.Config) manifests.Values {
	t.Helper()
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	service := &unstructured.Unstructured{}
	service.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Service"})
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "kubernetes"}, service))
	address, _, err := unstructured.NestedString(service.Object, "spec", "clusterIP")
	require.NoError(t, err)
	v := values
	v.ClusterDNS = address + "0" // 10.0.0.1 is the API server's, so this is 10.0.0.10
	return v
}

// versions are the generations and resource versions of everything installed.
func versions(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	objects, err := manifests.Objects(values)
	require.NoError(t, err)
	found := map[string]string{}
	for _, o := range objects {
		now := o.DeepCopy()
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), now))
		found[o.GetKind()+" "+o.GetName()] = now.GetResourceVersion()
	}
	return found
}
