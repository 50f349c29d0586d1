package gateway_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/kube"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// What a chart makes of templates, as Helm hands it on: a Vpc in the cloud's form, and one in the short form.
const released = `
apiVersion: vpc.mnicloud.jp/v1alpha1
kind: Vpc
metadata: {name: released, labels: {release: "1"}}
spec: {cidr: 10.42.0.0/16}
---
apiVersion: vpc/v1alpha
kind: Subnet
metadata: {name: front, displayName: Front}
spec: {vpc: released, cidr: 10.42.1.0/24}
`

// Helm's own storage of releases is Secrets or ConfigMaps, which users have none of: HELM_DRIVER=memory, or what keeps releases elsewhere.
func TestHelmsLibraryInstallsUpgradesAndUninstalls(t *testing.T) {
	w := newWorld(t)
	flags := genericclioptions.NewConfigFlags(false)
	file, namespace := w.kubectl("alice", "acme").kubeconfig, "acme"
	flags.KubeConfig, flags.Namespace = &file, &namespace
	helm := kube.New(flags)
	helm.Namespace = namespace
	require.NoError(t, helm.IsReachable())
	build := func(manifest string) kube.ResourceList {
		t.Helper()
		list, err := helm.Build(strings.NewReader(manifest), true)
		require.NoError(t, err)
		return list
	}

	first := build(released)
	made, err := helm.Create(first)
	require.NoError(t, err)
	require.Len(t, made.Created, 2)
	require.NoError(t, helm.Wait(first, patience))
	found, err := helm.Get(first, false)
	require.NoError(t, err)
	require.NotEmpty(t, found)
	require.Contains(t, w.send("alice", "GET", "/apis/vpc/v1alpha/namespaces/acme/subnets/front", "").body, `"displayName":"Front"`)

	// Another version of the chart changes one and has no other; what somebody else has added stays.
	k := w.kubectl("alice", "acme")
	k.run("", "label", "vpc", "released", "mine=yes")
	vpc, _, _ := strings.Cut(released, "---")
	second := build(strings.Replace(vpc, `release: "1"`, `release: "2"`, 1))
	changed, err := helm.Update(build(released), second, false)
	require.NoError(t, err)
	require.Len(t, changed.Updated, 1)
	require.Len(t, changed.Deleted, 1)
	require.Equal(t, "2 yes", k.run("", "get", "vpc", "released", "-o", "jsonpath={.metadata.labels.release} {.metadata.labels.mine}"))
	require.NoError(t, helm.WaitForDelete(first.Difference(second), patience))

	_, errs := helm.Delete(second)
	require.Empty(t, errs)
	require.NoError(t, helm.WaitForDelete(second, patience))
	refused := build(strings.Replace(vpc, "10.42.0.0/16", "none", 1))
	_, err = helm.Create(refused)
	require.ErrorContains(t, err, "cidr")
}
