package node

import (
	"net/netip"
	"os"
	"strings"
)

// resolvedUpstream is where systemd-resolved lists the resolvers behind its loopback one.
const resolvedUpstream = "/run/systemd/resolve/resolv.conf"

// Resolver is the resolv.conf that a node uses: the machine's, or, where that names a loopback resolver (which another
// network namespace cannot reach), the one behind it. It is empty when no reachable resolver is known.
func Resolver() []byte { return resolver("/etc/resolv.conf", resolvedUpstream) }

func resolver(files ...string) []byte {
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err == nil && reachable(string(content)) {
			return content
		}
	}
	return nil
}

// reachable says that at least one nameserver is named and none of them is on loopback.
func reachable(conf string) bool {
	found := false
	for line := range strings.Lines(conf) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		host, _, _ := strings.Cut(fields[1], "%")
		addr, err := netip.ParseAddr(host)
		if err != nil || addr.IsLoopback() {
			return false
		}
		found = true
	}
	return found
}
