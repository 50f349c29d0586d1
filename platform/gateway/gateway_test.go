package gateway_test

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

const vpcs = "/apis/vpc.mnicloud.jp/v1alpha1/namespaces/acme/vpcs"

const demoVpc = `
apiVersion: vpc.mnicloud.jp/v1alpha1
kind: Vpc
metadata: {name: demo, namespace: acme}
spec: {cidr: 10.42.0.0/16}
`

func TestATenantsResourcesAreUnderItsName(t *testing.T) {
	w := newWorld(t)
	made := w.send("alice", http.MethodPost, vpcs, demoVpc)
	require.Equal(t, 201, made.code, made.body)
	w.noNamespace(made.body)
	metadata := made.json(t)["metadata"].(map[string]any)
	require.Equal(t, "acme", metadata["namespace"])
	require.NotContains(t, metadata, "managedFields")

	for _, path := range []string{vpcs, vpcs + "/demo", "/apis/vpc.mnicloud.jp/v1alpha1/vpcs"} {
		got := w.send("carol", http.MethodGet, path, "")
		require.Equal(t, 200, got.code, got.body)
		require.Contains(t, got.body, `"namespace":"acme"`)
		w.noNamespace(got.body)
		table := w.send("carol", http.MethodGet, path, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
		require.Equal(t, "Table", table.json(t)["kind"], table.body)
		require.Contains(t, table.body, "10.42.0.0/16")
		w.noNamespace(table.body)
		text := w.send("carol", http.MethodGet, path, "", "Accept", "application/yaml")
		require.Contains(t, text.body, "cidr: 10.42.0.0/16")
		w.noNamespace(text.body)
	}
	for user, code := range map[string]int{"bob": 403, "carol": 403, "": 401} {
		refused := w.send(user, http.MethodDelete, vpcs+"/demo", "")
		require.Equal(t, code, refused.code, "%s: %s", user, refused.body)
		w.noNamespace(refused.body)
	}
	require.Equal(t, 403, w.send("bob", http.MethodGet, vpcs, "").code)
	require.Equal(t, 200, w.send("alice", http.MethodDelete, vpcs+"/demo", "").code)
}
