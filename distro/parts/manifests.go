package parts

import (
	"github.com/mnicloud/mnicloud/distro/manifests"
	"github.com/mnicloud/mnicloud/distro/node"
)

// Manifests are the values of the manifests that the instance's API server must hold.
func (o Options) Manifests() manifests.Values {
	return manifests.Values{
		ClusterDNS:  o.Instance.Addresses().DNS.String(),
		DNSReplicas: min(o.Nodes, 2),
		DNSImage:    o.DNSImage,
		Forward:     len(node.Resolver()) > 0,
	}
}
