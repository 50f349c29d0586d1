package registry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/distro/registry"
)

func TestHostsTOMLMapsTheNameToTheAddressWithTheNodesAccount(t *testing.T) {
	endpoint := registry.Endpoint{Address: "192.0.2.1:5000", CAFile: "/etc/mni/ca.crt"}
	require.Equal(t, `server = "https://192.0.2.1:5000"
ca = "/etc/mni/ca.crt"

[host."https://192.0.2.1:5000"]
capabilities = ["pull", "resolve"]
ca = "/etc/mni/ca.crt"

[host."https://192.0.2.1:5000".header]
Authorization = ["Basic bm9kZTpzZWNyZXQ="]
`, string(registry.HostsTOML(endpoint, "secret")))
	require.NotContains(t, string(registry.HostsTOML(endpoint, "")), "header")
	require.Equal(t, "/etc/containerd/certs.d/registry.mni.internal/hosts.toml", registry.HostsFile("/etc/containerd/certs.d"))
}
