//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// gadgetKind is a kind that nobody knew when the cloud started, and what tenants may do with it.
const gadgetKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.lab.mnicloud.jp}
spec:
  group: lab.mnicloud.jp
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList, shortNames: [gdg], categories: [mni]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Port, type: string, jsonPath: .spec.port}]
    schema:
      openAPIV3Schema:
        description: A Gadget is something that a laboratory has.
        type: object
        properties:
          spec:
            type: object
            properties:
              port: {description: Where it is plugged in., x-kubernetes-int-or-string: true}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: mni-lab-tenant-viewer, labels: {auth.mnicloud.jp/aggregate-to-viewer: "true"}}
rules: [{apiGroups: [lab.mnicloud.jp], resources: [gadgets], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: mni-lab-tenant-member, labels: {auth.mnicloud.jp/aggregate-to-member: "true"}}
rules: [{apiGroups: [lab.mnicloud.jp], resources: [gadgets], verbs: [create, update, patch, delete]}]
`

const gadgetPeople = `
apiVersion: auth.mnicloud.jp/v1alpha1
kind: User
metadata: {name: lab-mia}
spec: {password: "first of mia"}
---
apiVersion: auth.mnicloud.jp/v1alpha1
kind: Tenant
metadata: {name: lab}
spec: {members: [{user: lab-mia, role: member}]}
`

// https://github.com/kubernetes/kubernetes/issues/79472
func TestAKindMadeAtRunTimeIsUsableByMniAndKubectl(t *testing.T) {
	owner := func(ctx context.Context, args ...string) (string, error) {
		return command(ctx, gadgetKind, binaries+"/mni-kube", append([]string{"kubectl", "--kubeconfig", kubeconfigPath()}, args...)...)
	}
	admin := administrator(t)
	admin.mni(gadgetPeople, "apply", "-f", "-")
	t.Cleanup(func() {
		if out, err := admin.try(context.Background(), gadgetPeople, "mni", "delete", "-f", "-", "--timeout", "2m"); err != nil {
			t.Errorf("delete the user and the tenant: %v\n%s", err, out)
		}
		if out, err := owner(context.Background(), "delete", "-f", "-"); err != nil {
			t.Errorf("delete the kind: %v\n%s", err, out)
		}
	})
	admin.mni("", "wait", "tenant/lab", "user/lab-mia", "--timeout", "1m")
	mia := newPerson(t)
	_, err := mia.enter("lab-mia", "first of mia")
	require.NoError(t, err)
	mia.mni("", "kubeconfig", mia.kubeconfig())
	mia.refused("gadget", "", "get", "gadgets")

	out, err := owner(t.Context(), "apply", "-f", "-")
	require.NoError(t, err, out)
	out, err = owner(t.Context(), "wait", "--for=condition=Established", "crd/gadgets.lab.mnicloud.jp", "--timeout=1m")
	require.NoError(t, err, out)
	began := time.Now()
	eventually(t, "a member makes one", func(ctx context.Context) error {
		_, err := mia.try(ctx, "{apiVersion: lab/v1alpha1, kind: Gadget, metadata: {name: g}, spec: {port: http}}", "mni", "apply", "-f", "-")
		return err
	})
	eventually(t, "its fields are explained", func(ctx context.Context) error {
		out, err := mia.try(ctx, "", "mni", "explain", "gadget.spec.port")
		if err == nil && !strings.Contains(out, "Where it is plugged in.") {
			t.Fatal(out)
		}
		return err
	})
	t.Logf("usable and explained after %s, with the programs' starts", time.Since(began).Round(time.Millisecond)) // the aim is 2 s
	require.Regexp(t, `(?m)^NAME +PORT\ng +http$`, mia.mni("", "get", "gdg"))
	require.Contains(t, mia.mni("", "api-resources"), "gadgets")
	require.Contains(t, mia.mni("", "__complete", "get", "gad"), "gadget")
	require.Contains(t, mia.kubectl("", "get", "gadgets", "-o", "name"), "gadget.lab.mnicloud.jp/g")
	require.Contains(t, mia.kubectl("", "explain", "gadget.spec.port"), "Where it is plugged in.")
	mia.refused("spec.colour", "{apiVersion: lab/v1alpha1, kind: Gadget, metadata: {name: h}, spec: {colour: red}}", "apply", "-f", "-")
	mia.mni("", "delete", "gadget", "g", "--yes")
}
