package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing, shortNames: [th]}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        description: "A Thing\nof a tenant."
        properties:
          spec:
            type: object
            description: What it should be.
            required: [size]
            properties:
              size: {type: integer, format: int32, minimum: 1, maximum: 9, description: How large a|b.}
              mode: {type: string, enum: [fast, slow], default: fast}
              parts:
                type: array
                maxItems: 3
                items: {type: object, properties: {name: {type: string, maxLength: 5}}}
              labels: {type: object, additionalProperties: {type: string}}
              amount: {x-kubernetes-int-or-string: true}
              cidr: {type: string, x-kubernetes-validations: [{rule: "true", message: must be a range}]}
          status:
            type: object
            properties:
              conditions: {type: array, items: {type: object, properties: {type: {type: string}}}}
`

func TestEveryFieldHasARowWithItsTypeAndItsRules(t *testing.T) {
	in, out := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(in, "things.yaml"), []byte(crd), 0o600))
	require.NoError(t, run(out, []string{in}))
	page, err := os.ReadFile(filepath.Join(out, "example.org.md"))
	require.NoError(t, err)
	for _, line := range []string{
		"## Thing\n\nA Thing of a tenant.\n",
		"- scope: a namespace (tenant)\n- on the command line: `mni get th`\n",
		"| `spec.size` | integer (int32) | **Required.** How large a\\|b. From 1 to 9. |\n",
		"| `spec.mode` | string | One of `fast`, `slow`. Default `fast`. |\n",
		"| `spec.parts` | list of object | At most 3. |\n| `spec.parts[].name` | string | At most 5 characters. |\n",
		"| `spec.labels` | map of string |",
		"| `spec.amount` | integer or string |",
		"| `spec.cidr` | string | Checked: must be a range. |\n",
		"| `status.conditions` | list of object |",
	} {
		require.Contains(t, string(page), line)
	}
	require.NotContains(t, string(page), "status.conditions[]")
	index, err := os.ReadFile(filepath.Join(out, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(index), "| [example.org](example.org.md) | [Thing](example.org.md#thing) |")
}

func TestAFolderWithoutCRDsIsAnError(t *testing.T) {
	require.ErrorContains(t, run(t.TempDir(), []string{t.TempDir()}), "no CRD")
}
