package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	vpc "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

const networkYAML = `# The tenant's network.
apiVersion: vpc.mnicloud.jp/v1alpha1
kind: Vpc
metadata:
  name: net
spec:
  cidr: 10.0.0.0/16
---
apiVersion: vpc.mnicloud.jp/v1alpha1
kind: Subnet
metadata:
  name: front
spec:
  vpc: net
  cidr: 10.0.1.0/24
`

const webYAML = `apiVersion: ctr.mnicloud.jp/v1alpha1
kind: Container
metadata:
  name: web
spec:
  subnet: front
  image: registry.mni.internal/web:1
`

func (c *cloud) testApply(t *testing.T) {
	t.Run("many documents are created, then unchanged, then configured", func(t *testing.T) {
		ns := c.namespace(t)
		file := write(t, t.TempDir(), "net.yaml", networkYAML)
		require.Equal(t, "vpc/net created\nsubnet/front created\n", c.must(t, "apply", "-n", ns, "-f", file))
		require.Equal(t, "vpc/net unchanged\nsubnet/front unchanged\n", c.must(t, "apply", "-n", ns, "-f", file))
		labelled := write(t, t.TempDir(), "net.yaml", strings.Replace(networkYAML, "name: net\n", "name: net\n  labels: {tier: a}\n", 1))
		require.Equal(t, "vpc/net configured\nsubnet/front unchanged\n", c.must(t, "apply", "-n", ns, "-f", labelled))
		require.Equal(t, "vpc/net configured\nsubnet/front unchanged\n", c.must(t, "apply", "-n", ns, "-f", file), "a field that is left out goes")
	})
	t.Run("a folder's files are applied in order, other files are not read", func(t *testing.T) {
		ns, folder := c.namespace(t), t.TempDir()
		write(t, folder, "2-web.yml", webYAML)
		write(t, folder, "1-net.yaml", networkYAML)
		write(t, folder, "README.md", "not YAML: [")
		write(t, folder, "more/db.yaml", strings.ReplaceAll(webYAML, "name: web", "name: db"))
		require.Equal(t, "vpc/net created\nsubnet/front created\ncontainer/web created\n", c.must(t, "apply", "-n", ns, "-f", folder))
		require.Contains(t, c.must(t, "apply", "-n", ns, "-R", "-f", folder), "container/db created\n")
	})
	t.Run("standard input, JSON and Lists", func(t *testing.T) {
		ns := c.namespace(t)
		o := c.mniWithInput(t, `{"apiVersion":"v1","kind":"List","items":[
			{"apiVersion":"vpc.mnicloud.jp/v1alpha1","kind":"Vpc","metadata":{"name":"a"},"spec":{"cidr":"10.0.0.0/16"}},
			{"apiVersion":"vpc.mnicloud.jp/v1alpha1","kind":"Vpc","metadata":{"name":"b"},"spec":{"cidr":"10.0.0.0/16"}}]}
			{"apiVersion":"vpc.mnicloud.jp/v1alpha1","kind":"Vpc","metadata":{"name":"c"},"spec":{"cidr":"10.0.0.0/16"}}`, "apply", "-n", ns, "-f", "-")
		require.Equal(t, output{stdout: "vpc/a created\nvpc/b created\nvpc/c created\n"}, o)
	})
	t.Run("Namespaces go first and objects go where they say", func(t *testing.T) {
		text := strings.Replace(webYAML, "name: web", "name: web\n  namespace: late-tenant", 1) + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: late-tenant}\n"
		o := c.mniWithInput(t, text, "apply", "-f", "-")
		require.Equal(t, output{stdout: "namespace/late-tenant created\ncontainer/web created in namespace late-tenant\n"}, o)
	})
	t.Run("what get printed can be applied again", func(t *testing.T) {
		ns := c.namespace(t)
		require.NoError(t, c.client.Create(t.Context(), newVpc(ns, "net")))
		o := c.mniWithInput(t, c.must(t, "get", "-n", ns, "vpc", "net", "-o", "yaml"), "apply", "-n", ns, "-f", "-")
		require.Equal(t, output{stdout: "vpc/net unchanged\n"}, o)
	})
	t.Run("a dry run checks and changes nothing", func(t *testing.T) {
		ns := c.namespace(t)
		o := c.mniWithInput(t, networkYAML, "apply", "-n", ns, "-f", "-", "--dry-run")
		require.Equal(t, output{stdout: "vpc/net created (dry run)\nsubnet/front created (dry run)\n"}, o)
		var list vpc.VpcList
		require.NoError(t, c.client.List(t.Context(), &list, client.InNamespace(ns)))
		require.Empty(t, list.Items)
	})
	t.Run("output as names and as YAML", func(t *testing.T) {
		ns := c.namespace(t)
		o := c.mniWithInput(t, networkYAML, "apply", "-n", ns, "-f", "-", "-o", "name")
		require.Equal(t, output{stdout: "vpc.vpc.mnicloud.jp/net\nsubnet.vpc.mnicloud.jp/front\n"}, o)
		o = c.mniWithInput(t, networkYAML, "apply", "-n", ns, "-f", "-", "-o", "yaml")
		require.Contains(t, o.stdout, "kind: Vpc")
		require.NotContains(t, o.stdout, "managedFields")
	})
	t.Run("fields set by others are conflicts until they are taken over", func(t *testing.T) {
		ns := c.namespace(t)
		c.mniWithInput(t, webYAML, "apply", "-n", ns, "-f", "-")
		container := newContainer(ns, "web")
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"image":"other:2"}}`))
		require.NoError(t, c.client.Patch(t.Context(), container, patch, client.FieldOwner("editor")))
		o := c.mniWithInput(t, webYAML, "apply", "-n", ns, "-f", "-")
		require.Equal(t, ExitFailure, o.code)
		require.Contains(t, o.stderr, "error: standard input:7: container/web: spec.image: conflict with \"editor\"")
		require.Contains(t, o.stderr, "--force-conflicts")
		o = c.mniWithInput(t, webYAML, "apply", "-n", ns, "-f", "-", "--force-conflicts")
		require.Equal(t, output{stdout: "container/web configured\n"}, o)
	})
	t.Run("what other commands of mni have set is no conflict, and stays where the file says nothing", func(t *testing.T) {
		name := "by-command-" + c.namespace(t)
		c.must(t, "tenant", "create", name, "--display-name", "By command", "--quota", "cpu=4,vpcs=2", "--wait=false")
		file := "apiVersion: auth.mnicloud.jp/v1alpha1\nkind: Tenant\nmetadata: {name: " + name + "}\nspec: {quota: {cpu: '8'}}\n"
		require.Equal(t, exitDiffers, c.mniWithInput(t, file, "diff", "-f", "-").code)
		require.Equal(t, output{stdout: "tenant/" + name + " configured\n"}, c.mniWithInput(t, file, "apply", "-f", "-"))
		require.Equal(t, "By command 8 2", c.must(t, "get", "tenant", name, "-o", "jsonpath={.spec.displayName} {.spec.quota.cpu} {.spec.quota.vpcs}"))
		require.Equal(t, output{stdout: "tenant/" + name + " unchanged\n"}, c.mniWithInput(t, file, "apply", "-f", "-"))
		// As soon as somebody else's field is among them, all are told and none is taken over.
		tenant := &auth.Tenant{}
		require.NoError(t, c.client.Get(t.Context(), client.ObjectKey{Name: name}, tenant))
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"quota":{"storage":"1Gi"}}}`))
		require.NoError(t, c.client.Patch(t.Context(), tenant, patch, client.FieldOwner("editor")))
		o := c.mniWithInput(t, strings.Replace(file, "{cpu: '8'}", "{vpcs: 3, storage: 2Gi}", 1), "apply", "-f", "-")
		require.Equal(t, ExitFailure, o.code)
		require.Contains(t, o.stderr, "spec.quota.storage: conflict with \"editor\"")
		require.Equal(t, "2 1Gi", c.must(t, "get", "tenant", name, "-o", "jsonpath={.spec.quota.vpcs} {.spec.quota.storage}"))
	})
}

func (c *cloud) testApplyBadInput(t *testing.T) {
	ns := c.namespace(t)
	tests := map[string]struct {
		text string
		// says are parts of what is printed on standard error.
		says []string
	}{
		"a value the schema's rules refuse": {
			strings.Replace(networkYAML, "cidr: 10.0.1.0/24", "cidr: 10.0.1.5/24", 1),
			[]string{"standard input:15 (document 2): subnet/front: spec.cidr:", "cidr must be canonical", "1 of 2 documents could not be applied"},
		},
		"two wrong fields": {strings.NewReplacer("subnet: front", "subnet: ''", "image: registry.mni.internal/web:1", "image: '//'").Replace(webYAML), []string{"standard input:6: container/web: spec.subnet:", "standard input:7: container/web: spec.image:"}},
		"a value that is refused before the rules are looked at": {
			webYAML + "  ports: [{port: 0}]\n",
			[]string{"standard input:8: container/web: spec.ports[0].port: Invalid value: 0: should be greater than or equal to 1\n"},
		},
		"an image in capitals":               {strings.Replace(webYAML, "registry.mni.internal/web:1", "UPPER/x", 1), []string{`standard input:7: container/web: spec.image: Invalid value: "UPPER/x": image must be [registry/]repository[:tag][@sha256:digest] with the repository in lower case`}},
		"a variable given twice":             {webYAML + "  env: [{name: A, value: x}, {name: A, value: z}]\n", []string{"standard input:8: container/web: spec.env: name \"A\" stands there more than once: leave all but one out\n"}},
		"a group given twice":                {webYAML + "  securityGroups: [web, web]\n", []string{"standard input:8: container/web: spec.securityGroups: \"web\" stands there more than once: leave all but one out\n"}},
		"a number with a point":              {webYAML + "  resources: {limits: {cpu: 0.5}}\n", []string{`standard input:8: container/web: spec.resources.limits.cpu: must be a whole number or text: write it in quotes, such as "0.5"` + "\n"}},
		"a truth where an amount is wanted":  {webYAML + "  resources: {limits: {cpu: true}}\n", []string{"standard input:8: container/web: spec.resources.limits.cpu: must be integer or string, not boolean\n"}},
		"an amount that is none":             {webYAML + "  resources: {limits: {cpu: half}}\n", []string{"spec.resources.limits.cpu: Invalid value: \"half\": cpu must be more than 0 and at most 1024 cores, such as 500m or 2\n"}},
		"a word that YAML takes for a truth": {webYAML + "  env: [{name: A, value: y}]\n", []string{"spec.env[name=\"A\"].value: expected string: a value that YAML takes for something else (1, 1.0, yes, n, null) needs quotes\n"}},
		"a name with a dot":                  {strings.Replace(networkYAML, "name: net", "name: a.b", 1), []string{"standard input:5 (document 1): vpc/a.b: metadata.name: must be at most 63 characters and have no dots\n"}},
		"a name in capitals":                 {strings.Replace(networkYAML, "name: net", "name: A_b", 1), []string{"vpc/A_b: metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain", "(e.g. 'example.com')\n"}},
		"a name with a slash":                {strings.Replace(webYAML, "name: web", "name: a/b", 1), []string{"error: standard input:4: Container: metadata.name: \"a/b\" may not contain '/'\n"}},
		"an unknown field":                   {webYAML + "  imagee: x\n", []string{"standard input:8: container/web: spec.imagee: there is no such field: `mni explain container.spec` lists the fields"}},
		"an unknown nested field":            {webYAML + "  ports:\n  - port: 80\n  - prot: 81\n", []string{"standard input:10: container/web: spec.ports[1].prot: there is no such field: `mni explain container.spec.ports`"}},
		"a value of another type":            {webYAML + "  command: top\n", []string{"standard input:8: container/web: spec.command: expected list"}},
		"a field given twice":                {webYAML + "  image: other\n", []string{"standard input:8: invalid YAML: key \"image\" already set"}},
		"no YAML":                            {networkYAML + "---\nkind: [\n", []string{"standard input:17 (document 3): invalid YAML: did not find expected node content"}},
		"no object":                          {"just text\n", []string{"standard input:1: not an object"}},
		"no kind":                            {"apiVersion: v1\nmetadata: {name: x}\n", []string{"standard input:1: kind is missing"}},
		"no name":                            {strings.Replace(webYAML, "name: web", "labels: {}", 1), []string{"standard input:3: Container: metadata.name is missing"}},
		"a kind of wrong case":               {strings.Replace(networkYAML, "kind: Vpc", "kind: VPC", 1), []string{`this cloud has no kind "VPC"`, "did you mean apiVersion: vpc.mnicloud.jp/v1alpha1, kind: Vpc?"}},
		"a wrong version":                    {strings.Replace(webYAML, "v1alpha1", "v1", 1), []string{`this cloud has no kind "Container"`, "did you mean apiVersion: ctr.mnicloud.jp/v1alpha1, kind: Container?"}},
		"another namespace":                  {strings.Replace(webYAML, "name: web", "name: web\n  namespace: other", 1), []string{"standard input:5: container/web is declared in namespace \"other\", but the command line says \"" + ns + "\""}},
		"nothing":                            {"# only a comment\n---\n", []string{"no documents in standard input"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := c.mniWithInput(t, test.text, "apply", "-n", ns, "-f", "-", "--dry-run")
			require.Equal(t, ExitFailure, o.code, o.stderr)
			for _, part := range test.says {
				require.Contains(t, o.stderr, part)
			}
			for _, noise := range []string{"some validation rules were not checked", "regex", "typed patch", "in body", "[a-z"} {
				require.NotContains(t, o.stderr, noise)
			}
		})
	}
	t.Run("the other documents are applied all the same", func(t *testing.T) {
		ns, folder := c.namespace(t), t.TempDir()
		write(t, folder, "a.yaml", strings.Replace(networkYAML, "10.0.0.0/16", "fd00::/64", 1))
		write(t, folder, "b.yaml", "kind: [\n")
		write(t, folder, "c.yaml", webYAML)
		o := c.mni(t, "apply", "-n", ns, "-f", folder, "-f", folder+"/missing.yaml")
		require.Equal(t, ExitFailure, o.code)
		require.Equal(t, "subnet/front created\ncontainer/web created\n", o.stdout)
		require.Contains(t, o.stderr, folder+"/a.yaml:7 (document 1): vpc/net: spec.cidr:")
		require.Contains(t, o.stderr, folder+"/b.yaml:1:")
		require.Contains(t, o.stderr, "missing.yaml: no such file or directory")
		require.Contains(t, o.stderr, "error: 3 of 5 documents could not be applied")
	})
	t.Run("a namespace that does not exist", func(t *testing.T) {
		o := c.mniWithInput(t, webYAML, "apply", "-n", "nowhere", "-f", "-")
		require.Equal(t, ExitFailure, o.code)
		require.Contains(t, o.stderr, `namespace "nowhere" does not exist`)
	})
	t.Run("command lines that are not understood", func(t *testing.T) {
		for _, args := range [][]string{{"apply"}, {"apply", "net.yaml"}, {"apply", "-f", "x", "--dry-run=client"}, {"apply", "-f", "-", "-o", "wide"}, {"apply", "--nonsense"}} {
			o := c.mniWithInput(t, webYAML, args...)
			require.Equal(t, ExitUsage, o.code, "%v: %s", args, o.stderr)
			require.Contains(t, o.stderr, "error: ")
			require.Empty(t, o.stdout)
		}
	})
}
