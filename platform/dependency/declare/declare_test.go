package declare

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/platform/dependency/graph"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

// definitions are those of the cloud's kinds that live in tenants' namespaces.
func definitions(t *testing.T) map[schema.GroupKind]Kind {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(apiserver.Root(), "services/*/config/crd/*.yaml"))
	require.NoError(t, err)
	kinds := map[schema.GroupKind]Kind{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var crd apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.UnmarshalStrict(text, &crd))
		if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
			kinds[schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}] = Of(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		}
	}
	return kinds
}

func vpcKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: "vpc.mnicloud.jp", Kind: kind}
}

func TestEveryKindOfTheCloudSaysWhatItNames(t *testing.T) {
	kinds := definitions(t)
	words := map[string]string{}
	for gk, kind := range kinds {
		require.True(t, kind.DependsOn, "%s has spec.dependsOn", gk)
		require.True(t, kind.Reports, "%s has status.dependencies", gk)
		require.True(t, kind.Dependents, "%s has status.dependents", gk)
		for _, r := range kind.References {
			for _, target := range r.Targets {
				if target.Group != "vm.mnicloud.jp" {
					require.Contains(t, kinds, target.GroupKind, "%s names it", gk)
				}
				words[gk.Kind+" "+r.Strength.String()+" "+target.Kind] = r.Path[len(r.Path)-1]
			}
			require.Equal(t, (gk.Kind == "NATGateway" || gk.Kind == "VpcPeering") && r.Strength == graph.Needs, r.Guarded, "the services keep what their other kinds need")
		}
	}
	require.Equal(t, map[string]string{
		"Subnet needs Vpc": "vpc", "Subnet keeps RouteTable": "routeTable",
		"RouteTable needs Vpc": "vpc", "RouteTable names Container": "container", "RouteTable keeps NATGateway": "natGateway",
		"SecurityGroup names SecurityGroup": "securityGroup",
		"FloatingIP needs ExternalIP":       "externalIP", "FloatingIP names Container": "name", "FloatingIP names VirtualMachine": "name",
		"NATGateway needs Vpc": "vpc", "NATGateway names Subnet": each, "NATGateway keeps ExternalIP": each,
		"VpcPeering needs Vpc":   "vpc",
		"Container needs Subnet": "subnet", "Container keeps SecurityGroup": each,
	}, words)
}

func TestWhatAnObjectNamesIsFoundWhereverItStands(t *testing.T) {
	kinds := definitions(t)
	var table map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(`
spec:
  vpc: main
  routes:
  - {destination: 10.9.0.0/16, blackhole: true}
  - {destination: 0.0.0.0/0, container: firewall}
`), &table))
	require.Equal(t, []graph.Edge{
		{To: graph.Key{GroupKind: schema.GroupKind{Group: "ctr.mnicloud.jp", Kind: "Container"}, Namespace: "red", Name: "firewall"}, Field: "spec.routes[1].container"},
		{To: graph.Key{GroupKind: vpcKind("Vpc"), Namespace: "red", Name: "main"}, Strength: graph.Needs, Field: "spec.vpc"},
	}, kinds[vpcKind("RouteTable")].Edges("red", table))
	fip := map[string]any{"spec": map[string]any{"externalIP": "e", "target": map[string]any{"type": "virtualMachines", "name": "db"}}}
	edges := kinds[vpcKind("FloatingIP")].Edges("red", fip)
	require.Len(t, edges, 2)
	require.Equal(t, "VirtualMachine db", edges[1].To.String(), "by the field beside the name")
	nat := map[string]any{"spec": map[string]any{"subnets": []any{"a", 3, ""}, "externalIPs": "no list"}}
	require.Len(t, kinds[vpcKind("NATGateway")].Edges("red", nat), 1, "what is not what it should be names nothing")
	require.Empty(t, kinds[vpcKind("Subnet")].Edges("red", nil))
}

func TestOtherTitlesAreNoReferences(t *testing.T) {
	for _, text := range []string{"", "Size", "needs", "needs a name", "needs Vpc", "wants Vpc.vpc.mnicloud.jp", "names A.b.c when is d"} {
		_, ok := read(text)
		require.False(t, ok, text)
	}
	r, ok := read("depends on Vpc.vpc.mnicloud.jp")
	require.True(t, ok)
	require.True(t, r.Guarded)
}

func TestAKindIsMeantByItsNameAloneWhereItIsTheOnlyOne(t *testing.T) {
	other := schema.GroupKind{Group: "lab.mnicloud.jp", Kind: "Subnet"}
	kinds := []schema.GroupKind{vpcKind("Vpc"), vpcKind("Subnet"), other}
	for word, want := range map[string]schema.GroupKind{"Vpc": vpcKind("Vpc"), "Subnet.vpc": vpcKind("Subnet"), "Subnet.lab.mnicloud.jp": other} {
		got, err := Resolve(word, kinds)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := Resolve("Subnet", kinds)
	require.EqualError(t, err, "several API groups have a kind Subnet: write Subnet.lab.mnicloud.jp or Subnet.vpc.mnicloud.jp")
	_, err = Resolve("Pod", kinds)
	require.EqualError(t, err, "there is no kind Pod that a tenant has resources of")
	on := DependsOn(map[string]any{"spec": map[string]any{"dependsOn": []any{map[string]any{"kind": "Pod", "name": "a"}, map[string]any{"kind": "Vpc", "name": "b"}, "c"}}})
	require.Equal(t, []dependency.Dependency{{Kind: "Pod", Name: "a"}, {Kind: "Vpc", Name: "b"}}, on)
	edges, err := DependsOnEdges("red", on, kinds)
	require.EqualError(t, err, "spec.dependsOn[0].kind: there is no kind Pod that a tenant has resources of")
	require.Equal(t, []graph.Edge{{To: graph.Key{GroupKind: vpcKind("Vpc"), Namespace: "red", Name: "b"}, Strength: graph.Needs, Field: "spec.dependsOn[1]", Guarded: true}}, edges)
}
