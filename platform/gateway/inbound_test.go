package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// `mni tenant add` by a tenant's owner was refused: the Tenant's UID, which is the name of its namespace, is shown as the Tenant's name, and so
// came back.
func TestATenantsUIDComesBackAsItIs(t *testing.T) {
	const uid = "0b1c4e52-7a2f-4b7e-9a63-1f2d3c4b5a69"
	id := &Identity{Name: "ada", Tenants: map[string]string{"red": uid}}
	tenants := &served{kind: &kind{GroupVersionKind: schema.GroupVersionKind{Group: groupAuth, Version: "v1alpha1", Kind: "Tenant"}, plural: "tenants"}}
	for name, request := range map[string]struct{ verb, mediaType, body, want string }{
		"update":           {verbUpdate, typeJSON, `{"metadata":{"name":"red","uid":"red"}}`, `{"metadata":{"name":"red","uid":"` + uid + `"}}`},
		"merge patch":      {verbPatch, typeMergePatch, `{"metadata":{"uid":"red"}}`, `{"metadata":{"uid":"` + uid + `"}}`},
		"JSON patch":       {verbPatch, typeJSONPatch, `[{"op":"test","path":"/metadata/uid","value":"red"}]`, `[{"op":"test","path":"/metadata/uid","value":"` + uid + `"}]`},
		"delete":           {verbDelete, typeJSON, `{"preconditions":{"uid":"red"}}`, `{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions","preconditions":{"uid":"` + uid + `"}}`},
		"somebody else's":  {verbUpdate, typeJSON, `{"metadata":{"uid":"blue"}}`, `{"metadata":{"uid":"blue"}}`},
		"without metadata": {verbPatch, typeMergePatch, `{"metadata":null}`, `{"metadata":null}`},
	} {
		body, _, p := (&target{served: tenants, verb: request.verb, name: "red"}).inbound([]byte(request.body), request.mediaType, id)
		require.Nil(t, p, name)
		require.JSONEq(t, request.want, string(body), name)
	}
}
