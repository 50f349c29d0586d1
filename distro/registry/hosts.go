package registry

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
)

// HostsFile is where containerd looks for HostsTOML below its registry config_path (…/certs.d).
func HostsFile(configPath string) string { return filepath.Join(configPath, Name, "hosts.toml") }

// HostsTOML renders containerd's hosts.toml for Name: requests go to endpoint's address, its certificate is checked
// against endpoint's CA (a path as the node's containerd sees it). password is NodeUser's; with it the file is a secret
// (mode 0600). It may always be given: a registry without authentication ignores it.
func HostsTOML(endpoint Endpoint, password string) []byte {
	var out strings.Builder
	server := "https://" + endpoint.Address
	// containerd 1.6 wants a host table, and tries the server itself after it.
	fmt.Fprintf(&out, "server = %q\n", server)
	if endpoint.CAFile != "" {
		fmt.Fprintf(&out, "ca = %q\n", endpoint.CAFile)
	}
	fmt.Fprintf(&out, "\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n", server)
	if endpoint.CAFile != "" {
		fmt.Fprintf(&out, "ca = %q\n", endpoint.CAFile)
	}
	if password != "" {
		basic := base64.StdEncoding.EncodeToString([]byte(NodeUser + ":" + password))
		fmt.Fprintf(&out, "\n[host.%q.header]\nAuthorization = [%q]\n", server, "Basic "+basic)
	}
	return []byte(out.String())
}
